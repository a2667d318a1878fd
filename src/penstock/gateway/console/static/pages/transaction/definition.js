// The steps of the version that a transaction is pinned to; of a branch or an item, those at its path.

import { api, path } from "../../core/api.js";

const known = new Map();

/** Null if they cannot be read: the version may be gone, or not for everybody. A version never changes. */
export async function stepsAt(tx) {
  const key = `${tx.pipeline} ${tx.version}`;
  if (!known.has(key)) {
    const loading = api.get(path("/v1/pipelines/{}/versions/{}", tx.pipeline, tx.version)).catch(() => null);
    known.set(key, loading);
    if ((await loading) === null) known.delete(key);
  }
  return inside(await known.get(key), tx.path ?? "");
}

/** "3.eu" is branch eu of the step at 3, "3" the steps of the map at 3, and so on behind a slash. */
function inside(pipeline, place) {
  let steps = pipeline?.steps ?? null;
  for (const part of place ? place.split("/") : []) {
    const [at, branch] = part.split(".");
    const step = steps?.[Number(at)];
    steps = (branch ? step?.branches?.[branch] : step?.steps) ?? null;
  }
  return steps;
}

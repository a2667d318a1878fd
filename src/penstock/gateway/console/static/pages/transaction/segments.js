// The trail of a transaction as rows of bars over time: one row a step, one bar for each stretch in which it was
// queued, running, asleep, waiting or joining. Pure: knows neither the page nor the clock.
//
//     const rows = rowsOf(tx, definition.steps, children, now);
//     rows[0] -> { key, kind: "step" | "undo", step, name, status, bars: [{ kind, from, to, … }], entries, children }
//
// An entry of the trail says when an attempt began and ended. What lies between two of them is told by how the first
// one left: asleep, waiting, joining, in a pause before the next attempt; otherwise the step was in a queue.

const LEFT_AS = { sleep: "sleeping", wait: "waiting", join: "joining" };
const DONE = "success";
const STEPS = ["step", "undo"];
/** How those end that no worker has: where they were is where they stayed. */
const ENDED_ASIDE = ["cancelled", "timeout"];

export function rowsOf(tx, steps, children, now) {
  const book = new Map();
  const row = (kind, step, name) => {
    const key = `${kind}-${step}`;
    if (!book.has(key)) {
      const type = kind === "step" ? (steps?.[step]?.type ?? "") : "";
      book.set(key, { key, kind, step, name, type, status: "", bars: [], entries: [], joins: [], children: [] });
    }
    const found = book.get(key);
    if (name) found.name = name;
    return found;
  };
  steps?.forEach((each, at) => row("step", at, each.id));

  let free = tx.created_ms; // since when nobody has written anything
  let left = "queued";
  let joins = 0;
  let last = null;
  let holder = null; // the entry of whoever went on at once: between its steps there was no queue
  for (const entry of tx.trail ?? []) {
    if (!STEPS.includes(entry.kind)) {
      // Whoever was woken, taken from a silent worker or replayed goes to a queue.
      if (["wake", "replay", "lost"].includes(entry.kind) || (entry.kind === "switch" && left === "waiting")) {
        gap(row, book, free, entry.at_ms, entry.kind === "lost" ? "lost" : left);
        [free, left, holder] = [entry.at_ms, "queued", null];
      }
      continue;
    }
    const here = row(entry.kind, entry.step, entry.name);
    const isAtOnce = holder?.worker === entry.worker && holder.group === entry.group;
    if (!isAtOnce && (left !== "retry" || here === last)) bar(here, left, free, entry.started_ms);
    bar(here, "running", entry.started_ms, entry.at_ms, entry);
    here.entries.push(entry);
    here.status = entry.status;
    if (entry.status === "join") here.joins.push(++joins);
    free = entry.at_ms;
    left = LEFT_AS[entry.status] ?? (entry.status === DONE ? "queued" : "retry");
    holder = left === "queued" ? entry : null;
    last = here;
  }
  if (tx.state !== "ended") present(tx, row, left, free, now);
  else if (ENDED_ASIDE.includes(tx.status)) gap(row, book, free, tx.ended_ms, left);
  for (const child of children ?? []) {
    const join = Number(child.id.split(".").at(-2));
    [...book.values()].find((each) => each.joins.includes(join))?.children.push(child);
  }
  return inOrder([...book.values()]);
}

/** Where it is now: from its last entry, or since a worker took it. */
function present(tx, row, left, free, now) {
  const here = row("step", tx.step ?? 0);
  const isUp = tx.state === "queued" || tx.state === "running";
  const came = (tx.state === "running" ? tx.taken_ms : tx.queued_ms) ?? free;
  const since = isUp ? Math.min(now, Math.max(free, came)) : free;
  const kind = tx.state === "sleeping" && left === "retry" ? "retry" : tx.state;
  here.status = tx.state;
  bar(here, left, free, since);
  bar(here, kind, since, now, { isOpen: true, worker: tx.worker, group: tx.node_group, attempt: (tx.attempt ?? 0) + 1 });
}

/** A stretch that ended without an attempt: it belongs to whoever was at it. */
function gap(row, book, from, to, kind) {
  const last = [...book.values()].filter((each) => each.bars.length).sort((a, b) => a.bars.at(-1).to - b.bars.at(-1).to).at(-1);
  bar(last ?? row("step", 0), kind, from, to);
}

function bar(row, kind, from, to, entry = {}) {
  if (kind !== "running" && to - from < 1) return;
  const { worker = "", group = "", attempt = 0, status = "", note = "", isOpen = false } = entry;
  row.bars.push({ kind, from, to: Math.max(from, to), worker, group, attempt, status, note, isOpen });
}

/** Steps as the pipeline has them, then what undid them, in the order in which it ran. */
function inOrder(rows) {
  const first = (each) => each.bars[0]?.from ?? Infinity;
  const steps = rows.filter((each) => each.kind === "step").sort((a, b) => a.step - b.step);
  return [...steps, ...rows.filter((each) => each.kind === "undo").sort((a, b) => first(a) - first(b))];
}

/** Where moments lie between 0 and 1. Even: short stretches get more room than they have time. */
export function scaleOf(rows, from, to, isEven) {
  if (!isEven) return (at) => clamp((at - from) / Math.max(1, to - from));
  const moments = new Set([from, to]);
  for (const row of rows) {
    for (const each of [...row.bars, ...row.children.map((child) => ({ from: child.created_ms, to: child.ended_ms ?? to }))]) {
      moments.add(each.from).add(each.to);
    }
  }
  const sorted = [...moments].filter((at) => at >= from && at <= to).sort((a, b) => a - b);
  const sums = [0];
  for (let at = 1; at < sorted.length; at++) sums.push(sums[at - 1] + Math.log2(2 + sorted[at] - sorted[at - 1]));
  const whole = sums.at(-1) || 1;
  return (at) => {
    const after = sorted.findIndex((each) => each >= at);
    if (after <= 0) return after === 0 ? 0 : 1;
    const part = (at - sorted[after - 1]) / (sorted[after] - sorted[after - 1]);
    return clamp((sums[after - 1] + part * (sums[after] - sums[after - 1])) / whole);
  };
}

const clamp = (part) => Math.min(1, Math.max(0, part));

// Limits of pipelines and node groups, for the pages of both: what is set, and the buttons that change it.
//
//     const limits = useLimits("pipelines");
//     html`<${LimitButtons} kind="pipelines" name="checkout" limit=${limits.of("checkout")} after=${limits.reload} />`

import { html } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { useLoad } from "../../core/loading.js";
import { ActionButton } from "../../parts/dialogs.js";

const REFRESH_MS = 5_000;
const NONE = { is_paused: false, concurrency: 0, rate: 0, burst: 1, max_queued: 0 };

/** Which fields people may set for what. 0 is no limit. */
const FIELDS = {
  pipelines: [
    ["concurrency", "Steps at a time", "0 is no limit."],
    ["rate", "Taken up in a second", "0 is no limit."],
    ["burst", "At once after a quiet time", "At least 1; matters where there is a rate."],
  ],
  "node-groups": [["max_queued", "Most that may wait", "Starts are refused while so many wait; 0 is no limit."]],
};
const WORDS = { concurrency: "at a time", rate: "a second", max_queued: "may wait" };

export function useLimits(kind) {
  const loaded = useLoad(() => api.get("/v1/limits"), [], { everyMs: REFRESH_MS });
  const mine = new Map((loaded.data?.limits ?? []).filter((each) => each.kind === kind).map((each) => [each.name, each]));
  return { of: (name) => mine.get(name) ?? NONE, reload: loaded.reload };
}

/** "10 at a time, 50 a second"; empty without a limit. */
export const limitText = (limit) =>
  Object.entries(WORDS).filter(([name]) => limit[name]).map(([name, word]) => `${limit[name]} ${word}`).join(", ");

export function LimitButtons({ kind, name, limit, after, className = "" }) {
  const target = path("/v1/limits/{}/{}", kind, name);
  const fields = FIELDS[kind].map(([field, label, hint]) => ({ name: field, label, hint, kind: "number", value: limit[field] }));
  const set = (values) => api.put(target, { ...wishOf(limit), ...numbersOf(values) });
  return html`
    ${limit.is_paused
      ? html`<${ActionButton} label="Resume" className=${className} after=${after} title="Let ${name} go on"
          question=${{ title: `Resume ${name}?`, text: "What waited goes on." }} act=${() => api.post(`${target}/resume`)} done="${name} goes on." />`
      : html`<${ActionButton} label="Pause" className=${className} after=${after} isDangerous title="Let nothing more of ${name} begin"
          question=${{ title: `Pause ${name}?`, text: "Nothing more of it begins; steps that run go on to their end." }}
          act=${() => api.post(`${target}/pause`)} done="${name} is paused." />`}
    <${ActionButton} label="Set limits" className=${className} after=${after} title="Set limits of ${name}"
      question=${{ title: `Limits of ${name}`, fields }} act=${set} done="The limits of ${name} hold from now on." />
  `;
}

const numbersOf = (values) => Object.fromEntries(Object.entries(values).map(([field, text]) => [field, Number(text)]));
const wishOf = (limit) => Object.fromEntries(Object.keys(NONE).map((field) => [field, limit[field]]));

// How two versions of a pipeline, or a version and the draft, differ: line by line, as the gateway tells it.

import { html } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { useLoad } from "../../core/loading.js";
import { Empty, Loaded } from "../../parts/messages.js";

const DRAFT = "draft";

export function Difference({ state, query, change }) {
  const versions = [...state.versions].reverse();
  const names = [...(state.has_draft ? [DRAFT] : []), ...versions.map((each) => each.version)];
  const to = query.to ?? names[0];
  const from = query.from ?? (to !== state.active ? state.active : null) ?? names.find((each) => each !== to);
  const compare = () => (from && to ? api.get(path("/v1/pipelines/{}/diff", state.name), { from, to }) : "");
  const found = useLoad(compare, [state.name, from, to, state.has_draft]);
  if (names.length < 2) {
    return html`<${Empty} title="There is only one">Changes are shown between two versions, or a version and the draft.<//>`;
  }
  const choose = (name, value, label) => html`<label class="filter"><span>${label}</span>
    <select class="wide" onChange=${(event) => change({ [name]: event.target.value })}>
      ${names.map((each) => html`<option value=${each} selected=${each === value}>${wordOf(each, state)}</option>`)}
    </select></label>`;
  return html`<div class="filters">${choose("from", from, "From")}${choose("to", to, "To")}</div>
    <${Loaded} of=${found}>${(text) => html`<${Lines} text=${text} />`}<//>`;
}

const wordOf = (version, state) => (version === DRAFT ? DRAFT : `${version.slice(0, 8)}${version === state.active ? " (active)" : ""}`);

function Lines({ text }) {
  if (!text) return html`<${Empty} title="They are the same" />`;
  const lines = text.replace(/\n$/, "").split("\n");
  const shown = lines.map((line) => html`<span class=${kindOf(line)}>${line || " "}</span>`);
  return html`<pre class="difference" tabindex="0" aria-label="Difference">${shown}</pre>`;
}

function kindOf(line) {
  if (/^(---|\+\+\+|@@)/.test(line)) return "place";
  return line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "same";
}

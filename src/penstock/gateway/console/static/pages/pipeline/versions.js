// The versions of a pipeline, newest first, and what can be done with each.

import { html } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { moment } from "../../core/format.js";
import { link } from "../../core/router.js";
import { ActionButton } from "../../parts/dialogs.js";
import { Empty } from "../../parts/messages.js";
import { Copied, Mark } from "../../parts/small.js";
import { Table } from "../../parts/table.js";

/** `after`: called when something was done; without it nothing can be. */
export function Versions({ state, place, after }) {
  if (!state.versions.length) {
    return html`<${Empty} title="It has no version yet">
      <p>Commit its draft, here or by</p><${Copied} text=${`penstock pipeline commit ${state.name} -m 'the first'`} /><//>`;
  }
  const rows = [...state.versions].reverse();
  const columns = [
    { name: "Version", show: (row) => html`<span><a href=${link(place, { version: row.version })}><code>${row.version.slice(0, 8)}</code></a>
        ${row.is_active && html` <${Mark} word="active" />`}</span>` },
    { name: "Comment", isWide: true, show: (row) => row.comment || html`<span class="quiet">–</span>` },
    { name: "By", show: (row) => row.by || html`<span class="quiet">–</span>` },
    { name: "Committed", show: (row) => moment(row.committed_ms) },
    { name: "", show: (row) => html`<span class="cell-buttons">
        ${state.active && !row.is_active && html`<a href=${link(place, { tab: "changes", from: state.active, to: row.version })}>Changes</a>`}
        ${after && html`<${Buttons} state=${state} row=${row} after=${after} />`}</span>` },
  ];
  return html`<${Table} label="Versions" rows=${rows} keyOf=${(row) => row.version} columns=${columns} />`;
}

function Buttons({ state, row, after }) {
  const short = row.version.slice(0, 8);
  const target = path("/v1/pipelines/{}/versions/{}", state.name, row.version);
  return html`
    ${!row.is_active && html`<${ActionButton} label="Activate" className="small" after=${after} title="Activate ${short}"
      question=${{ title: `Activate ${short}?`, text: "New transactions run this version. What runs goes on with its own." }}
      act=${() => api.post(`${target}/activate`)} done="${short} is active." />`}
    <${ActionButton} label="Clone" className="small" after=${after} title="Make a draft of ${short}"
      question=${{ title: `Make a draft of ${short}?`, isDangerous: state.has_draft,
        text: state.has_draft ? "It replaces the draft that there is." : "It can be changed and committed as another version." }}
      act=${() => api.post(`${target}/clone`)} done="The draft is ${short}." />
    ${!row.is_active && html`<${ActionButton} label="Delete" className="small" isDangerous after=${after} title="Delete ${short}"
      question=${{ title: `Delete ${short}?`, text: "It cannot be had back. One that transactions run stays." }}
      act=${() => api.delete(target)} done="${short} is gone." />`}
  `;
}

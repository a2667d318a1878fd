// One table of the lake: its columns and a sample of its rows, the newest first where that is cheap.

import { html } from "../core/view.js";
import { ApiError, api, path } from "../core/api.js";
import { NOTHING, ago, bytes, moment, number, plural } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { useQuery } from "../core/router.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Choice } from "../parts/small.js";
import { Facts, Table } from "../parts/table.js";

const LIMITS = [["20", "20 rows"], ["100", "100 rows"]];
/** Longer values are folded. */
const LONG = 120;
/** More columns are folded, too. */
const UNFOLDED = 12;
const EVERY_MS = 10_000;

export function LakeTable({ route }) {
  const { table: name } = route.params;
  const [query, change] = useQuery(route);
  const limit = query.limit === "100" ? "100" : "20";
  const about = useLoad(() => loadTable(name), [name], { everyMs: EVERY_MS });
  const sample = useLoad(() => api.get(path("/v1/lake/{}/rows", name), { limit }), [name, limit]);
  return html`
    <${Head} title=${name} crumbs=${[["Data pipeline", "/data"]]}>
      <button onClick=${() => (about.reload(), sample.reload())}>Read again</button>
    <//>
    <${Loaded} of=${about}>${(table) => html`<${About} table=${table} />`}<//>
    <div class="section-head"><h2>A sample of rows</h2>
      <${Choice} label="Rows shown" of=${LIMITS} value=${limit} onChange=${(each) => change({ limit: each })} />
    </div>
    <${Loaded} of=${sample}>${(found) => html`<${Rows} sample=${found} />`}<//>
  `;
}

async function loadTable(name) {
  const { tables } = await api.get("/v1/lake");
  const found = tables.find((table) => table.name === name);
  if (!found) throw new ApiError(404, "no-such-table", `the lake has no table ${name}; its tables are on the page before`);
  return found;
}

function About({ table }) {
  return html`
    <${Facts} items=${[
      ["Rows", number(table.rows)],
      ["Files", number(table.files)],
      ["Size", bytes(table.bytes)],
      ["Version", number(table.version)],
      ["Changed", `${ago(table.modified_ms)} (${moment(table.modified_ms)})`],
    ]} />
    <details class="folded" open=${table.columns.length <= UNFOLDED}>
      <summary>Columns <span class="quiet">${plural(table.columns.length, "column")}</span></summary>
      <${Table} label="Columns" rows=${table.columns} keyOf=${(column) => column.name} columns=${[
        { name: "Column", show: (column) => column.name, className: "mono" },
        { name: "Type", show: (column) => column.type, className: "mono wide" },
      ]} />
    </details>
  `;
}

function Rows({ sample }) {
  if (!sample.rows.length) return html`<${Empty} title="The table has no rows yet">The next pass of its job may bring some.<//>`;
  const columns = sample.columns.map((name, at) => ({
    name, show: (row) => html`<${Value} value=${row[at]} />`, isNumber: typeof sample.rows[0][at] === "number", className: "mono cell",
  }));
  return html`<${Table} label="A sample of rows" rows=${sample.rows} columns=${columns} />`;
}

function Value({ value }) {
  if (value === null || value === undefined) return html`<span class="quiet">${NOTHING}</span>`;
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  if (text.length <= LONG) return html`<span>${text}</span>`;
  return html`<details class="long"><summary>${text.slice(0, LONG)} …</summary>${text}</details>`;
}

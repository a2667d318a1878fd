// Pipelines: which there are, what is started of each, which have a draft or are paused. One pipeline is pipeline.js.

import { html } from "../core/view.js";
import { api } from "../core/api.js";
import { number } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { go, link, place, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { ask } from "../parts/dialogs.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Copied, Mark } from "../parts/small.js";
import { Pager, Table } from "../parts/table.js";
import { limitText, useLimits } from "./limits/limit.js";

const REFRESH_MS = 5_000;
const PAGE = 100;

export function Pipelines({ route }) {
  const [query, change] = useQuery(route);
  const { can } = useSession();
  const cursors = query.page ? query.page.split(",") : [];
  const page = useLoad(() => api.get("/v1/pipelines", { limit: PAGE, cursor: cursors.at(-1) }), [query.page], { everyMs: REFRESH_MS });
  const limits = useLimits("pipelines");
  return html`
    <${Head} title="Pipelines">${can("operate") && html`<button onClick=${create}>New pipeline</button>`}<//>
    <${Loaded} of=${page}>${(data) =>
      data.pipelines.length
        ? html`<${List} items=${data.pipelines} limits=${limits} />
            <${Pager} page=${data} cursors=${cursors} onChange=${(next) => change({ page: next.join(",") || null })} />`
        : html`<${Nothing} />`}<//>
  `;
}

async function create() {
  const fields = [{ name: "name", label: "Name", hint: "Letters, digits or any of _ . @ : / + -" }];
  const values = await ask({ title: "New pipeline", action: "Write a draft", fields });
  if (values) go(place("/pipelines/{}", values.name.trim()), { tab: "draft" });
}

function List({ items, limits }) {
  return html`<${Table} label="Pipelines" rows=${items} keyOf=${(row) => row.name} columns=${[
    { name: "Pipeline", isWide: true, show: (row) => html`<a href=${link(place("/pipelines/{}", row.name))}>${row.name}</a>` },
    { name: "Active version", show: (row) => (row.active ? html`<code>${row.active.slice(0, 8)}</code>` : html`<span class="quiet">none</span>`) },
    { name: "Versions", isNumber: true, show: (row) => number(row.versions) },
    { name: "Marks", show: (row) => marksOf(row, limits.of(row.name)) },
    { name: "", show: (row) => html`<a href=${link("/transactions", { tab: "all", pipeline: row.name })}>Transactions</a>` },
  ]} />`;
}

function marksOf(row, limit) {
  const marks = [
    row.has_draft && html`<${Mark} word="draft" kind="busy" /> `,
    limit.is_paused && html`<${Mark} word="paused" /> `,
    limitText(limit) && html`<small class="quiet">${limitText(limit)}</small>`,
  ].filter(Boolean);
  return marks.length ? html`<span>${marks}</span>` : null;
}

function Nothing() {
  return html`<${Empty} title="There are no pipelines yet">
    <p>A worker deploys those of its module when it starts:</p>
    <${Copied} text="penstock worker shop" />
    <p>Definitions are also data:</p>
    <${Copied} text="penstock pipeline save parcel.json" /><//>`;
}

// Node groups and the workers that serve them: who waits, who runs, who lives; pause, resume, how much at a time.

import { html } from "../core/view.js";
import { api, path } from "../core/api.js";
import { ago, moment, number, plural } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { link, place } from "../core/router.js";
import { useSession } from "../core/session.js";
import { ActionButton } from "../parts/dialogs.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Copied, Mark } from "../parts/small.js";
import { Table } from "../parts/table.js";
import { LimitButtons, limitText, useLimits } from "./limits/limit.js";

const REFRESH_MS = 2_000;
const RUNNING = 200;
const SHOWN = 3;
/** Workers say that they live several times in that time; after it they count as dead. */
const SILENT_MS = 15_000;

export function NodeGroups() {
  const { can } = useSession();
  const groups = useLoad(() => api.get("/v1/node-groups").then((page) => page.node_groups), [], { everyMs: REFRESH_MS });
  const workers = useLoad(() => api.get("/v1/workers").then((page) => page.workers), [], { everyMs: REFRESH_MS });
  const running = useLoad(() => api.get("/v1/transactions", { state: "running", limit: RUNNING }), [], { everyMs: REFRESH_MS });
  const held = byWorker(running.data?.transactions ?? []);
  const limits = useLimits("node-groups");
  const after = () => Promise.all([groups.reload(), limits.reload()]);
  return html`
    <${Head} title="Node groups" />
    <${Loaded} of=${groups} empty=${html`<${NoGroups} />`}>${(rows) =>
      html`<${Groups} rows=${rows} limits=${limits} after=${can("operate") ? after : null} />`}<//>
    <h2>Workers</h2>
    <${Loaded} of=${workers} empty=${html`<${NoWorkers} />`}>${(rows) => html`<${Workers} rows=${rows} held=${held} />`}<//>
  `;
}

function byWorker(transactions) {
  const held = new Map();
  for (const each of transactions) held.set(each.worker, [...(held.get(each.worker) ?? []), each]);
  return held;
}

/** `after`: called when something was done; without it nothing can be. */
function Groups({ rows, limits, after }) {
  const columns = [
    { name: "Node group", isWide: true, show: (row) => html`<span><a href=${link("/transactions", { node_group: row.name })}>${row.name}</a>
        ${row.is_paused && html` <${Mark} word="paused" />`}
        ${limitText(limits.of(row.name)) && html` <small class="quiet">${limitText(limits.of(row.name))}</small>`}</span>` },
    { name: "By people", isNumber: true, show: (row) => number(row.admin) },
    { name: "Going on", isNumber: true, show: (row) => number(row.out) },
    { name: "New", isNumber: true, show: (row) => number(row.in) },
    { name: "Held back", isNumber: true, show: (row) => number(row.held) },
    { name: "Running", isNumber: true, show: (row) => number(row.running) },
    { name: "Oldest", isNumber: true, show: (row) => ago(row.oldest_ms) },
    { name: "Workers", isNumber: true, show: (row) => (row.workers ? number(row.workers) : html`<${Mark} word="none" kind="warn" />`) },
    { name: "Each takes", isNumber: true, show: (row) => (row.concurrency ? number(row.concurrency) : html`<span class="quiet">its own</span>`) },
  ];
  const buttons = (row) => html`<span class="cell-buttons"><${Buttons} row=${row} limit=${limits.of(row.name)} after=${after} /></span>`;
  if (after) columns.push({ name: "", show: buttons });
  return html`<${Table} label="Node groups" rows=${rows} keyOf=${(row) => row.name} columns=${columns} />`;
}

function Buttons({ row, limit, after }) {
  const wish = (text) => (text === "" ? null : Number(text));
  const question = {
    title: `Workers of ${row.name}`,
    text: "Workers follow within seconds. More of them are started where they run: penstock worker.",
    fields: [{
      name: "concurrency", label: "Transactions that each worker takes at a time", kind: "number", value: row.concurrency ?? "",
      isOptional: true, hint: "Empty: as each was started.",
    }],
  };
  return html`
    <${ActionButton} label="Set workers" className="small" after=${after} title="Set how much each worker of ${row.name} takes"
      question=${question} act=${({ concurrency }) => api.put(path("/v1/node-groups/{}", row.name), { concurrency: wish(concurrency) })}
      done=${(set) => `Workers of ${set.name} take ${set.concurrency ? `${set.concurrency} at a time` : "what they were started with"}.`} />
    <${LimitButtons} kind="node-groups" name=${row.name} limit=${{ ...limit, is_paused: row.is_paused }} after=${after} className="small" />
  `;
}

function Workers({ rows, held }) {
  return html`<${Table} label="Workers" rows=${rows} keyOf=${(row) => row.id} columns=${[
    { name: "Worker", isWide: true, show: (row) =>
        html`<span>${row.id}${row.labels?.kind && html` <small class="quiet">${row.labels.kind}</small>`}</span>` },
    { name: "State", show: (row) => html`<${Mark} word=${row.state ?? "working"} kind=${row.state === "stopping" ? "warn" : "good"} />` },
    { name: "Serves", show: (row) => (row.node_groups ?? []).join(", ") },
    { name: "Busy", show: (row) => html`<${Load} has=${Math.max(row.running ?? 0, held.get(row.id)?.length ?? 0)} of=${row.concurrency ?? 0} />` },
    { name: "Runs", isWide: true, show: (row) => html`<${Runs} items=${held.get(row.id) ?? []} />` },
    { name: "Ended", isNumber: true, show: (row) => number(row.ended ?? 0) },
    { name: "Last heard", isNumber: true, show: (row) => html`<${Heard} at=${row.heard_ms} />` },
    { name: "Up since", isNumber: true, show: (row) => moment(row.started_ms) },
    { name: "Where", show: (row) => html`<span title=${aboutOf(row)}>${row.host}:${row.pid}</span>` },
  ]} />`;
}

const aboutOf = ({ version, steps = [] }) => `version ${version}, ${plural(steps.length, "step")}: ${steps.join(", ")}`;

function Load({ has, of }) {
  const width = `${Math.min(100, (100 * has) / Math.max(1, of))}%`;
  return html`<span class="nowrap">${number(has)} of ${number(of)}<span class="load" aria-hidden="true"><i style=${{ width }}></i></span></span>`;
}

function Heard({ at }) {
  if (!at) return html`<span class="quiet">–</span>`;
  return Date.now() - at > SILENT_MS ? html`<${Mark} word=${ago(at)} kind="warn" />` : ago(at);
}

function Runs({ items }) {
  if (!items.length) return html`<span class="quiet">nothing</span>`;
  const rest = items.length - SHOWN;
  const name = (each) => each.external_id ?? `${each.pipeline} …${each.id.slice(-6)}`;
  return html`<span>
    ${items.slice(0, SHOWN).map((each, at) => html`${at > 0 && ", "}<a href=${link(place("/transactions/{}", each.id))}>${name(each)}</a>`)}
    ${rest > 0 && html` <span class="quiet">and ${number(rest)} more</span>`}</span>`;
}

function NoGroups() {
  return html`<${Empty} title="There are no node groups yet">A pipeline or a worker names the first.<//>`;
}

function NoWorkers() {
  return html`<${Empty} title="No worker is alive">
    <p>Transactions wait until one comes:</p><${Copied} text="penstock worker shop --node-group shop" /><//>`;
}

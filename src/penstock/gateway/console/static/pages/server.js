// The server: this gateway and the store behind it; who is connected, what was slow, and everything INFO tells.

import { html } from "../core/view.js";
import { api } from "../core/api.js";
import { bytes, compact, duration, moment, number, plural } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { useQuery } from "../core/router.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Mark, Search } from "../parts/small.js";
import { Facts, Table, Tiles } from "../parts/table.js";

const EVERY_MS = 3_000;
const SLOW_EVERY_MS = 10_000;
/** Of the slow log, at first and at most. */
const SLOW_SHOWN = 8;
const SLOW_MOST = 100;
const CLIENTS_SHOWN = 200;
/** Below this much of room on the disk people should do something. */
const LOW_DISK_BYTES = 2e9;

/** What each durability promises. */
const PROMISES = {
  always: "A reply means that it is on disk: what was answered survives a killed process and a power cut.",
  relaxed: "What was answered survives a killed process; the last moments before a power cut may be lost.",
  "aof-always": "The server writes its log to disk before it answers: what was answered survives a power cut.",
  "aof-everysec": "The server writes its log to disk once a second: a power cut may lose the last second.",
  "aof-no": "The server writes a log that reaches the disk when the system likes: a power cut may lose half a minute.",
  aof: "The server writes a log; how often that reaches the disk, it does not tell.",
  snapshots: "The server writes snapshots now and then: a crash loses what came after the last one.",
  none: "The server keeps everything in memory alone: it is gone when the server stops.",
};
const SAFE = ["always", "aof-always"];

export function Server({ route }) {
  const server = useLoad(() => api.get("/v1/server"), [], { everyMs: EVERY_MS });
  return html`
    <${Head} title="Server" />
    <${Loaded} of=${server}>${(data) => html`<${About} server=${data} />`}<//>
    <${Clients} route=${route} />
    <${SlowLog} route=${route} />
    ${server.data && html`<${Info} server=${server.data} />`}
  `;
}

function About({ server }) {
  const { store } = server;
  return html`
    <div class="few"><${Tiles} items=${tilesOf(server)} /></div>
    <div class="cards three">
      <section class="card" aria-label="Durability">
        <h2>Durability <${Mark} word=${store.durability} kind=${SAFE.includes(store.durability) ? "good" : "warn"} /></h2>
        <p>${PROMISES[store.durability] ?? "The server does not tell how it keeps what it was given."}</p>
      </section>
      <section class="card" aria-label="Store"><h2>Store</h2><${Facts} items=${storeFacts(store)} /></section>
      <section class="card" aria-label="Gateway"><h2>Gateway</h2><${Facts} items=${gatewayFacts(server)} /></section>
    </div>
  `;
}

function tilesOf({ memory_bytes: memory, store }) {
  const isEmbedded = store.kind === "embedded"; // then this process holds the store
  const free = store.disk_free_bytes;
  return [
    { name: "memory of the gateway", value: bytes(memory) },
    !isEmbedded && { name: "memory of the store", value: bytes(store.memory_bytes) },
    { name: isEmbedded ? "size on disk" : "data in memory", value: bytes(store.used_bytes) },
    free !== null && { name: "free on its disk", value: bytes(free), kind: free < LOW_DISK_BYTES ? "bad" : "" },
    { name: "commands a second", value: compact(store.commands_per_s) },
    { name: "clients", value: compact(store.clients) },
  ].filter(Boolean);
}

const storeFacts = (store) => [
  ["Kind", store.kind],
  ["Address", store.url],
  ["Directory", store.path],
  ["Version", store.version],
  ["Keys", number(store.keys)],
  ["Running for", duration(store.uptime_s * 1000)],
];

const gatewayFacts = (server) => [
  ["Penstock", server.version],
  ["Python", server.python],
  ["Process", String(server.pid)],
  ["Worker", `${server.worker + 1} of ${server.workers}`],
  ["Running for", duration(server.uptime_s * 1000)],
];

function Clients({ route }) {
  const [query, change] = useQuery(route);
  const found = useLoad(() => api.get("/v1/server/clients", { limit: CLIENTS_SHOWN }), [], { everyMs: EVERY_MS });
  const wanted = (query.client ?? "").toLowerCase();
  const isWanted = (client) => [client.name, client.address, client.library, client.command]
    .some((word) => (word ?? "").toLowerCase().includes(wanted));
  return html`
    <div class="section-head"><h2>Clients</h2>
      <${Search} label="Find clients" placeholder="Name, address, command" value=${query.client}
        onChange=${(client) => change({ client })} />
    </div>
    <${Loaded} of=${found}>
      ${({ clients, total }) => html`
        <${ClientTable} clients=${clients.filter(isWanted)} />
        ${total > clients.length && html`<p class="quiet">These are the last ${number(clients.length)} of ${number(total)}.</p>`}
      `}
    <//>
  `;
}

function ClientTable({ clients }) {
  if (!clients.length) return html`<p class="quiet">There is no such client.</p>`;
  return html`<${Table} label="Clients" rows=${clients} keyOf=${(client) => `${client.node ?? ""} ${client.id}`} columns=${[
    ...nodeColumn(clients),
    { name: "Client", show: (client) => client.name || `#${client.id}`, isWide: true },
    { name: "Address", show: (client) => client.address || "in this process", className: "mono" },
    { name: "Library", show: (client) => client.library || "–" },
    { name: "Last command", show: (client) => client.command || "–", className: "mono" },
    { name: "Flags", show: (client) => client.flags || "–" },
    { name: "Db", show: (client) => client.db, isNumber: true },
    { name: "Connected", show: (client) => duration(client.age_s * 1000), isNumber: true },
    { name: "Idle", show: (client) => duration(client.idle_s * 1000), isNumber: true },
  ]} />`;
}

/** Which primary of a cluster; elsewhere there is one server. */
const nodeColumn = (rows) =>
  rows.some((row) => row.node) ? [{ name: "Node", show: (row) => row.node ?? "–", className: "mono" }] : [];

function SlowLog({ route }) {
  const [query, change] = useQuery(route);
  const load = async () => (await api.get("/v1/server/slow-log", { limit: SLOW_MOST })).entries;
  const found = useLoad(load, [], { everyMs: SLOW_EVERY_MS });
  const empty = html`<${Empty} title="No command was slow">
    Commands that take longer than <code>slowlog-log-slower-than</code> are listed here.
  <//>`;
  return html`
    <h2>Slow log</h2>
    <${Loaded} of=${found} empty=${empty}>
      ${(entries) => html`
        <${SlowTable} entries=${query.slow === "all" ? entries : entries.slice(0, SLOW_SHOWN)} />
        ${entries.length > SLOW_SHOWN && query.slow !== "all" &&
        html`<p class="more"><button onClick=${() => change({ slow: "all" })}>Show all ${number(entries.length)}</button></p>`}
      `}
    <//>
  `;
}

function SlowTable({ entries }) {
  return html`<${Table} label="Slow log" rows=${entries} keyOf=${(entry) => `${entry.node ?? ""} ${entry.id}`} columns=${[
    ...nodeColumn(entries),
    { name: "When", show: (entry) => moment(entry.at_ms), className: "nowrap" },
    { name: "Took", show: (entry) => duration(entry.duration_us / 1000), isNumber: true },
    { name: "Command", show: (entry) => html`<${Command} words=${entry.command} />`, className: "mono wide" },
    { name: "Client", show: (entry) => entry.client || "in this process", className: "nowrap" },
  ]} />`;
}

const Command = ({ words }) => html`<span class="command">${words.join(" ")}</span>`;

/** What the store says of itself; each server of a cluster for itself. */
function Info({ server }) {
  if (!server.nodes?.length) return html`<h2>INFO</h2><${Sections} sections=${server.info} />`;
  return server.nodes.map(({ node, info }) => html`<h2>INFO of ${node}</h2><${Sections} sections=${info} />`);
}

function Sections({ sections }) {
  return Object.entries(sections).map(
    ([name, values]) => html`<details class="folded" key=${name}>
      <summary>${name} <span class="quiet">${plural(Object.keys(values).length, "value")}</span></summary>
      <${Table} label="INFO ${name}" rows=${Object.entries(values)} keyOf=${([key]) => key} columns=${[
        { name: "Name", show: ([key]) => key, className: "mono" },
        { name: "Value", show: ([, value]) => shown(value), className: "mono wide" },
      ]} />
    </details>`,
  );
}

const shown = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

// The overview: what happens now, live. One stream of events (`/v1/overview/events`) moves everything but the table of
// who is busiest, which is asked for every few seconds.
//
// What the gateway tells of now only (queues, commands) is remembered here, for as long as the console is open.

import { html, useState } from "../core/view.js";
import { api, path } from "../core/api.js";
import { bytes, compact, duration, number, plural } from "../core/format.js";
import { useEvents, useLoad } from "../core/loading.js";
import { link, useQuery } from "../core/router.js";
import { Chart } from "../parts/chart.js";
import { Commands, useStoreName } from "../parts/commands.js";
import { Head } from "../parts/frame.js";
import { Empty, Failure, Loaded } from "../parts/messages.js";
import { Choice, Mark } from "../parts/small.js";
import { Table, Tiles } from "../parts/table.js";
import {
  History, LEVELS, LEVEL_NAMES, endedIn, failuresIn, quantiles, rates, waitingIn,
} from "./overview_figures.js";

const KEPT = 300;
const BUSIEST = 8;
const BUSIEST_EVERY_MS = 5_000;
const BY = [["pipeline", "Pipelines"], ["owner", "Owners"], ["node_group", "Node groups"]];

const queues = new History(KEPT);
const commands = new History(KEPT);

function remember(figures) {
  const seconds = figures.now_ms / 1000;
  queues.add(seconds, Object.fromEntries(figures.node_groups.map((group) => [group.name, waitingIn(group)])));
  commands.add(seconds, { commands: figures.store.commands_per_s });
}

export function Overview({ route }) {
  const [query, change] = useQuery(route);
  const level = known(LEVELS, query.level);
  const by = known(BY, query.by);
  const [figures, setFigures] = useState(null);
  const [isAway, setAway] = useState(false);
  const overview = (data) => {
    setAway(data.store === null); // what was seen last stays
    if (data.store === null) return;
    remember(data);
    setFigures(data);
  };
  const { line, end } = useEvents("/v1/overview/events", { overview }, [level], { level });
  return html`
    <${Head} title="Overview">
      <${Line} line=${line} isAway=${isAway} />
      <${Choice} label="Time shown" of=${LEVELS} value=${level} onChange=${(each) => change({ level: each })} />
    <//>
    ${end && html`<${Failure} error=${{ message: end.detail ?? end.reason }} />`}
    ${figures
      ? html`<${Figures} figures=${figures} level=${level} by=${by} onBy=${(each) => change({ by: each })} />`
      : !end && html`<p class="quiet loading">Loading …</p>`}
  `;
}

/** One of the values that may be chosen; the first if it is none of them. */
const known = (choices, value) => (choices.some(([each]) => each === value) ? value : choices[0][0]);

function Line({ line, isAway }) {
  const isLive = line === "live" && !isAway;
  const word = isLive ? "live" : line === "ended" ? "ended" : `waiting for the ${line === "live" ? "store" : "gateway"}`;
  return html`<span role="status" aria-label="Live line"><${Mark} word=${word} kind=${isLive ? "good" : "warn"} /></span>`;
}

function Figures({ figures, level, by, onBy }) {
  const { transactions, statistics, node_groups: groups, jobs, store, now_ms: nowMs } = figures;
  const isUsed = Boolean(transactions?.total || statistics?.total.queued || groups.length);
  return html`
    ${transactions && html`<div class="many"><${Tiles} items=${tilesOf(transactions, statistics, jobs)} /></div>`}
    ${!isUsed && html`<${Beginning} />`}
    <div class="cards charts">
      ${isUsed && statistics && html`<${StatisticsCharts} statistics=${statistics} />`}
      ${isUsed && html`<${Card}><${Chart} label="Waiting for workers, by node group" isWhole ...${queues.drawn()} /><//>`}
      <${Card}><${Chart} label="Commands a second" ...${commands.drawn()} height=${isUsed ? undefined : 120} /><//>
    </div>
    ${groups.length > 0 && html`<h2>Node groups</h2><${Groups} groups=${groups} nowMs=${nowMs} />`}
    ${isUsed && statistics && html`<${Busiest} level=${level} by=${by} onBy=${onBy} />`}
    <${StoreLine} store=${store} />
  `;
}

const Card = ({ children }) => html`<div class="card">${children}</div>`;

function StatisticsCharts({ statistics }) {
  return html`
    <${Card}><${Chart} label="Transactions a second" ...${rates(statistics)} /><//>
    <${Card}><${Chart} label="From the queue to a worker" format=${duration} ...${quantiles(statistics, "wait")} /><//>
    <${Card}><${Chart} label="From start to end" format=${duration} ...${quantiles(statistics, "latency")} /><//>
  `;
}

/** Where transactions are listed; with their children, which the gateway counts as well. */
const listed = (query) => link("/transactions", { ...query, children: "true" });

function tilesOf(transactions, statistics, jobs) {
  const asleep = transactions.sleeping - transactions.waiting; // the gateway counts who waits among them
  const tiles = [
    { name: "queued", value: compact(transactions.queued), href: listed({ state: "queued" }) },
    { name: "running", value: compact(transactions.running), href: listed({ state: "running" }) },
    { name: "sleeping", value: compact(asleep), href: listed({ tab: "sleeping" }) },
    { name: "waiting", value: compact(transactions.waiting), href: listed({ tab: "waiting" }), note: "for a switch" },
    { name: "dead letter", value: compact(transactions.dead), href: listed({ tab: "dead" }), kind: transactions.dead ? "bad" : "" },
    { name: "to archive", value: compact(transactions.to_archive), href: listed({ tab: "ended" }) },
    { name: "webhooks waiting", value: compact(transactions.webhooks), href: link("/webhooks") },
  ];
  if (statistics) tiles.splice(-3, 0, failedTile(statistics));
  if (jobs.running || jobs.failing || jobs.alive_nodes) tiles.push(jobTile(jobs));
  return tiles;
}

function failedTile({ level, total }) {
  const count = failuresIn(total.ended);
  const note = `in ${LEVELS.find(([each]) => each === level)[1]}`;
  return { name: "failed", value: compact(count), note, kind: count ? "warn" : "", href: listed({ tab: "ended", status: "failed" }) };
}

function jobTile({ running, failing }) {
  const note = failing ? `run, ${compact(failing)} failing` : "run";
  return { name: "data jobs", value: compact(running), note, kind: failing ? "bad" : "", href: link("/data") };
}

function Beginning() {
  const store = useStoreName();
  return html`<${Empty} title="Nothing has happened in this store yet">
    Run a sample shop, or begin with steps of your own: a module such as <code>shop.py</code> has them.
    <${Commands} of=${[
      ["A sample shop, with a store of its own", "penstock demo"],
      ["A worker for the steps of shop.py", `penstock worker shop --store ${store}`],
      ["A transaction", `penstock tx start checkout '{"total": 42}' --store ${store}`],
    ]} />
  <//>`;
}

function Groups({ groups, nowMs }) {
  const oldest = (group) => (group.oldest_ms ? duration(Math.max(0, nowMs - group.oldest_ms)) : null);
  return html`<${Table} label="Node groups" rows=${groups} keyOf=${(group) => group.name} columns=${[
    { name: "Node group", show: (group) => html`<a href=${link("/node-groups")}>${group.name}</a>` },
    { name: "State", show: (group) => html`<${GroupState} group=${group} />` },
    { name: "Waiting", show: (group) => number(waitingIn(group)), isNumber: true },
    { name: "Held back", show: (group) => number(group.held), isNumber: true },
    { name: "Running", show: (group) => number(group.running), isNumber: true },
    { name: "Workers", show: (group) => number(group.workers), isNumber: true },
    { name: "Longest wait", show: (group) => oldest(group) ?? "–", isNumber: true },
  ]} />`;
}

function GroupState({ group }) {
  const marks = [];
  if (group.is_paused) marks.push(["paused", "warn", "Nothing of it begins until somebody resumes it."]);
  if (!group.workers) {
    marks.push(["no workers", waitingIn(group) ? "bad" : "warn", "Start one: penstock worker MODULE --store STORE"]);
  }
  if (!marks.length) return html`<${Mark} word="works" kind="good" />`;
  return html`<span class="marks">
    ${marks.map(([word, kind, why]) => html`<span title=${why}><${Mark} word="⚠ ${word}" kind=${kind} /></span>`)}
  </span>`;
}

function Busiest({ level, by, onBy }) {
  const load = () => api.get("/v1/transaction-statistics", { by, level });
  const found = useLoad(load, [by, level], { everyMs: BUSIEST_EVERY_MS });
  return html`
    <div class="section-head"><h2>Busiest</h2><${Choice} label="Busiest of" of=${BY} value=${by} onChange=${onBy} /></div>
    <${Loaded} of=${found}>${(data) => html`<${BusiestTable} data=${data} by=${by} />`}<//>
  `;
}

const PLACES = {
  pipeline: (name) => link(path("/pipelines/{}", name)),
  owner: (name) => listed({ tab: "all", owner: name }),
  node_group: (name) => listed({ tab: "all", node_group: name }),
};

function BusiestTable({ data, by }) {
  const span = LEVEL_NAMES[data.level];
  const rows = Object.entries(data.parts).map(([name, slot]) => ({ name, ...slot }));
  rows.sort((one, other) => other.queued - one.queued || other.started - one.started);
  if (!rows.length) return html`<p class="quiet">Nothing happened in the last ${span}.</p>`;
  return html`<${Table} label="Busiest" rows=${rows.slice(0, BUSIEST)} keyOf=${(row) => row.name} columns=${[
    { name: BY.find(([each]) => each === by)[1].slice(0, -1), show: (row) => html`<a href=${PLACES[by](row.name)}>${row.name}</a>`, isWide: true },
    { name: "Queued", show: (row) => number(row.queued), isNumber: true },
    { name: "A second", show: (row) => number(row.queued / Math.max(1, data.seconds)), isNumber: true },
    { name: "Ended", show: (row) => number(endedIn(row.ended)), isNumber: true },
    { name: "Failed", show: (row) => number(failuresIn(row.ended)), isNumber: true },
    { name: "Retried", show: (row) => number(row.retried), isNumber: true },
    { name: "Wait p95", show: (row) => duration(row.wait?.p95_ms), isNumber: true },
    { name: "Start to end p95", show: (row) => duration(row.latency?.p95_ms), isNumber: true },
  ]} />`;
}

function StoreLine({ store }) {
  const free = store.disk_free_bytes === null ? "" : `, ${bytes(store.disk_free_bytes)} free on its disk`;
  return html`<p class="quiet store-line">
    <a href=${link("/server")}>The store</a> (${store.kind}, ${store.durability}): ${plural(store.keys, "key")}
    ${" "}in ${bytes(store.used_bytes)}${free}; ${plural(store.clients, "client")}.
  </p>`;
}

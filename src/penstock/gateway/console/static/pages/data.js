// The data pipeline: jobs that keep a lake in step with the store, as their runners publish what they do, and the
// tables of the lake that the gateway knows.

import { html } from "../core/view.js";
import { api, path } from "../core/api.js";
import { ago, bytes, compact, duration, moment, number, plural } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { link } from "../core/router.js";
import { Commands, useStoreName } from "../parts/commands.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Mark } from "../parts/small.js";
import { Table, Tiles } from "../parts/table.js";

const JOBS_EVERY_MS = 2_000;
const LAKE_EVERY_MS = 10_000;

export function DataPipeline() {
  const jobs = useLoad(async () => (await api.get("/v1/jobs")).jobs, [], { everyMs: JOBS_EVERY_MS });
  const lake = useLoad(loadLake, [], { everyMs: LAKE_EVERY_MS });
  return html`
    <${Head} title="Data pipeline" />
    ${jobs.data?.length > 0 && html`<div class="few"><${Tiles} items=${tilesOf(jobs.data, lake.data)} /></div>`}
    <h2>Jobs</h2>
    <${Loaded} of=${jobs} empty=${html`<${NoJobs} />`}>${(found) => html`<${Jobs} jobs=${found} />`}<//>
    <h2>Tables of the lake</h2>
    <${Loaded} of=${lake}>${(found) => html`<${Lake} lake=${found} />`}<//>
  `;
}

/** A gateway that knows no lake is no failure: `tables` is null then. */
async function loadLake() {
  try {
    return await api.get("/v1/lake");
  } catch (error) {
    if (error.code === "no-lake") return { path: null, tables: null, why: error.message };
    throw error;
  }
}

function tilesOf(jobs, lake) {
  const living = jobs.filter((job) => job.is_alive);
  const failing = living.filter((job) => job.failures > 0).length;
  const sum = (rows, numberOf) => rows.reduce((total, row) => total + (numberOf(row) ?? 0), 0);
  const tables = lake?.tables ?? [];
  return [
    { name: "jobs", value: number(living.length), note: `on ${plural(new Set(living.map((job) => job.node)).size, "node")}` },
    { name: "running now", value: number(living.filter((job) => job.state === "running").length) },
    { name: "failing", value: number(failing), kind: failing ? "bad" : "" },
    { name: "left for later", value: compact(sum(living, (job) => job.report?.lag)) },
    { name: "rows in the lake", value: compact(sum(tables, (table) => table.rows)) },
    { name: "size of the lake", value: bytes(sum(tables, (table) => table.bytes)) },
  ];
}

function NoJobs() {
  const store = useStoreName();
  return html`<${Empty} title="No job has run on this store">
    Jobs take streams and ended transactions to Delta tables, which any program that knows Delta can read.
    <${Commands} of=${[
      ["What it needs", "pip install 'penstock[spark]'"],
      ["Export the stream orders, archive transactions, roll up statistics", `penstock spark run --store ${store} --lake ./lake --streams orders`],
    ]} />
  <//>`;
}

function Jobs({ jobs }) {
  return html`<${Table} label="Jobs" rows=${jobs} keyOf=${(job) => `${job.job}@${job.node}`} columns=${[
    { name: "Job", show: (job) => html`<${JobName} job=${job} />`, className: "nowrap" },
    { name: "State", show: (job) => html`<${JobState} job=${job} />` },
    { name: "Last pass", show: (job) => html`<${LastPass} report=${job.report} />`, className: "nowrap" },
    { name: "Rows", show: (job) => html`<${Rows} report=${job.report} />`, isNumber: true },
    { name: "Behind", show: (job) => number(job.report?.lag), isNumber: true },
    { name: "Now", show: (job) => html`<${Now} job=${job} />`, isWide: true },
    { name: "Passes", show: (job) => html`<${Passes} job=${job} />`, isNumber: true },
    { name: "Last error", show: (job) => html`<${LastError} job=${job} />`, isWide: true },
  ]} />`;
}

const JobName = ({ job }) => html`<span><strong>${job.job}</strong>
  <small class="below quiet">${job.kind === job.job ? "" : `${job.kind}, `}on ${job.node}</small></span>`;

function JobState({ job }) {
  if (job.is_alive) return html`<${Mark} word=${job.state} kind=${job.state === "waiting" ? "calm" : undefined} />`;
  if (job.state === "stopped") return html`<${Mark} word="stopped" />`;
  return html`<span title="Its runner has not been heard of since ${moment(job.at_ms)}."><${Mark} word="runner gone" kind="warn" /></span>`;
}

function LastPass({ report }) {
  if (!report) return html`<span class="quiet">–</span>`;
  return html`<span title=${moment(report.ended_ms)}>${ago(report.ended_ms)}
    <small class="below quiet">took ${duration(report.ended_ms - report.started_ms)}</small></span>`;
}

function Rows({ report }) {
  if (!report) return html`<span class="quiet">–</span>`;
  return html`<span>${number(report.rows)}<small class="below quiet">${plural(report.batches, "batch", "batches")}</small></span>`;
}

/** How far the pass is that runs, or when the next one begins. */
function Now({ job }) {
  if (!job.is_alive) return html`<span class="quiet">–</span>`;
  if (job.state === "running") return html`<span>${wordsOf(job.progress) || "begins"}</span>`;
  return html`<span class="quiet nowrap">${job.next_ms ? `next pass ${soon(job.next_ms)}` : "–"}</span>`;
}

const soon = (ms) => (ms <= Date.now() ? "now" : ago(ms));

const wordsOf = (numbers) =>
  Object.entries(numbers).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : value}`).join(", ");

function Passes({ job }) {
  return html`<span>${number(job.passes)}${job.failed_passes > 0 && html`<small class="below bad-text">${plural(job.failed_passes, "failure")}</small>`}</span>`;
}

function LastError({ job }) {
  if (!job.error) return html`<span class="quiet">–</span>`;
  const isOver = job.failures === 0;
  return html`<span class=${isOver ? "quiet" : "bad-text"}>${job.error}
    <small class="below quiet">${ago(job.error_ms)}${isOver ? ", worked since" : `, ${plural(job.failures, "time")} in a row`}</small></span>`;
}

function Lake({ lake }) {
  if (lake.tables === null) return html`<${NoLake} why=${lake.why} />`;
  if (!lake.tables.length) {
    return html`<${Empty} title="The lake is empty">The first pass of a job makes its tables in <code>${lake.path}</code>.<//>`;
  }
  return html`
    <${Table} label="Tables of the lake" rows=${lake.tables} keyOf=${(table) => table.name} columns=${[
      { name: "Table", show: (table) => html`<a href=${link(path("/data/{}", table.name))}>${table.name}</a>` },
      { name: "Rows", show: (table) => number(table.rows), isNumber: true },
      { name: "Files", show: (table) => number(table.files), isNumber: true },
      { name: "Size", show: (table) => bytes(table.bytes), isNumber: true },
      { name: "Columns", show: (table) => number(table.columns.length), isNumber: true },
      { name: "Version", show: (table) => number(table.version), isNumber: true },
      { name: "Changed", show: (table) => html`<span title=${moment(table.modified_ms)}>${ago(table.modified_ms)}</span>`, isNumber: true },
    ]} />
    <p class="quiet store-line">Delta tables in <code>${lake.path}</code>.</p>
  `;
}

function NoLake({ why }) {
  const store = useStoreName();
  return html`<${Empty} title="There is no lake to show">
    ${why}
    <${Commands} of=${[["A gateway that shows a lake", `penstock gateway --store ${store} --lake ./lake`]]} />
  <//>`;
}

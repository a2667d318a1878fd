// Transactions: lists by where they are, filters, search. Everything that is chosen is in the address.
//
//     #/transactions?tab=ended&pipeline=checkout&status=failed
//
// The API filters and orders (newest first); this page only words its questions. One transaction is transaction.js.

import { html, useState } from "../core/view.js";
import { api } from "../core/api.js";
import { ago, duration, moment } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { go, link, place, useQuery } from "../core/router.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Copied, Mark, Search, Tabs } from "../parts/small.js";
import { Pager, Table } from "../parts/table.js";
import { inBrief, stateWord } from "./transaction/words.js";

const REFRESH_MS = 3_000;
const PAGE = 50;

/** Tab: its name, what it asks the API, what is said if there is nothing. */
const TABS = {
  play: ["In play", { status: "running" }, "Nothing is under way"],
  sleeping: ["Sleeping", { state: "sleeping" }, "Nothing sleeps"],
  waiting: ["Waiting for a switch", { state: "waiting" }, "Nothing waits for a switch"],
  dead: ["Dead letter", { state: "dead" }, "Nothing was given up"],
  ended: ["Ended", { state: "ended" }, "Nothing has ended, or all of it was archived"],
  archived: ["Archived", { archived: "true" }, "The archive has nothing like this"],
  all: ["All", {}, "There are no transactions like this"],
};
const ENDINGS = ["success", "failed", "aborted", "timeout", "cancelled", "internal-error"];
const IN_PLAY = ["queued", "running", "sleeping", "waiting", "joining"];
const WITH_ENDINGS = ["ended", "archived", "all", "dead"];
const IS_ID = /^tx-\d{1,4}-[0-9a-f]{31}(\.\d+\.\d+)*$/;
const FILTERS = ["owner", "pipeline", "status", "external_id", "node_group", "since", "until"];

export function Transactions({ route }) {
  const [query, change] = useQuery(route);
  const tab = TABS[query.tab] ? query.tab : "play";
  const cursors = query.page ? query.page.split(",") : [];
  const asked = questionOf(tab, query, cursors);
  const page = useLoad(() => api.get("/v1/transactions", asked), [JSON.stringify(asked)], { everyMs: REFRESH_MS });
  const narrow = (parts) => change({ ...parts, page: null });

  return html`
    <${Head} title="Transactions">
      <${Search} key=${query.external_id} label="Id or external id" value=${query.external_id}
        onChange=${(text) => search(text, narrow)} />
    <//>
    <${Tabs} label="Where they are" value=${tab} of=${Object.entries(TABS).map(([each, [name]]) => [each, name])}
      placeOf=${(each) => link("/transactions", { ...query, tab: each, page: null, status: statusFor(each, query) })} />
    <${Filters} tab=${tab} query=${query} narrow=${narrow} />
    ${page.error?.code === "archive-not-configured"
      ? html`<${NoArchive} />`
      : html`<${Loaded} of=${page}>${(data) => html`
          ${shownOf(data, query).length
            ? html`<${List} items=${shownOf(data, query)} />`
            : html`<${Nothing} tab=${tab} query=${query} isLast=${!data.cursor} />`}
          <${Pager} page=${data} cursors=${cursors} onChange=${(next) => change({ page: next.join(",") || null })} />
        `}<//>`}
  `;
}

function questionOf(tab, query, cursors) {
  const isArchive = tab === "archived";
  const asked = { limit: PAGE, ...TABS[tab][1] };
  for (const name of FILTERS) if (query[name] && !(isArchive && name === "node_group")) asked[name] = query[name];
  if (!WITH_ENDINGS.includes(tab)) Object.assign(asked, TABS[tab][1]);
  if (tab === "play" && query.state) asked.state = query.state;
  // Parts of others belong to their pages, unless somebody wants to see them here.
  if (!isArchive && !query.children) asked.roots = "true";
  if (cursors.length) asked.cursor = cursors.at(-1);
  return asked;
}

/** The archive gives parts of others, too. */
const shownOf = (data, query) => (query.children ? data.transactions : data.transactions.filter((each) => !each.parent));

const statusFor = (tab, query) => (WITH_ENDINGS.includes(tab) ? query.status : null);

/** An id leads to its page at once; anything else is an external id, looked for everywhere but in the archive. */
function search(text, narrow) {
  if (IS_ID.test(text)) go(place("/transactions/{}", text));
  else narrow({ external_id: text || null, ...(text ? { tab: "all" } : {}) });
}

// ------------------------------------------------------------------------------------------------ filters

function Filters({ tab, query, narrow }) {
  const pipelines = useLoad(() => api.get("/v1/pipelines", { limit: 1000 }));
  const names = (pipelines.data?.pipelines ?? []).map((each) => each.name);
  const isNarrowed = Object.keys(NO_FILTERS).some((name) => query[name]);
  const [isOpen, setOpen] = useState(isNarrowed);
  return html`<button class="small filters-door" aria-expanded=${Boolean(isOpen)} onClick=${() => setOpen(!isOpen)}>Filters</button>
  <div class="filters ${isOpen ? "" : "shut"}" role="group" aria-label="Filters">
    <${TextFilter} name="owner" label="Owner" query=${query} narrow=${narrow} />
    <${TextFilter} name="pipeline" label="Pipeline" query=${query} narrow=${narrow} choices=${names} />
    ${tab !== "archived" && html`<${TextFilter} name="node_group" label="Node group" query=${query} narrow=${narrow} />`}
    ${WITH_ENDINGS.includes(tab) && html`<label class="filter"><span>Status</span>
      <select onChange=${(event) => narrow({ status: event.target.value || null })}>
        <option value="" selected=${!query.status}>any</option>
        ${ENDINGS.map((each) => html`<option selected=${query.status === each}>${each}</option>`)}
      </select></label>`}
    ${tab === "play" && html`<label class="filter"><span>State</span>
      <select onChange=${(event) => narrow({ state: event.target.value || null })}>
        <option value="" selected=${!query.state}>any</option>
        ${IN_PLAY.map((each) => html`<option selected=${query.state === each}>${each}</option>`)}
      </select></label>`}
    <${MomentFilter} name="since" label="Since" query=${query} narrow=${narrow} />
    <${MomentFilter} name="until" label="Until" query=${query} narrow=${narrow} />
    <label class="check"><input type="checkbox" checked=${Boolean(query.children)}
      onChange=${(event) => narrow({ children: event.target.checked ? "true" : null })} /> with children</label>
    ${isNarrowed && html`<button class="small" onClick=${() => narrow(NO_FILTERS)}>Clear filters</button>`}
  </div>`;
}

const NO_FILTERS = Object.fromEntries([...FILTERS, "state", "children"].map((name) => [name, null]));

function TextFilter({ name, label, query, narrow, choices = [] }) {
  const list = choices.length ? `known-${name}` : undefined;
  return html`<label class="filter"><span>${label}</span>
    <input value=${query[name] ?? ""} list=${list} autocomplete="off" placeholder="any"
      onChange=${(event) => narrow({ [name]: event.target.value.trim() || null })} />
    ${list && html`<datalist id=${list}>${choices.map((each) => html`<option value=${each} />`)}</datalist>`}
  </label>`;
}

/** The field has local time, the address UTC: so that it means the same to whoever gets it. */
function MomentFilter({ name, label, query, narrow }) {
  const set = (event) => narrow({ [name]: event.target.value ? new Date(event.target.value).toISOString() : null });
  return html`<label class="filter"><span>${label}</span>
    <input type="datetime-local" value=${localTime(query[name])} onChange=${set} /></label>`;
}

function localTime(text) {
  const date = new Date(text ?? NaN);
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

// ------------------------------------------------------------------------------------------------ the list

function List({ items }) {
  return html`<${Table} label="Transactions" rows=${items} keyOf=${(row) => row.id} columns=${[
    { name: "Transaction", isWide: true, show: (row) => html`<span class="tx-name">
        <a class="tx-id" href=${link(place("/transactions/{}", row.id))}>${row.external_id ?? row.id}</a>
        ${row.external_id && html`<small class="quiet tx-id">${row.id}</small>`}</span>` },
    { name: "Pipeline", show: (row) => html`<span>${row.pipeline}${row.path && html` <small class="quiet">${row.path}</small>`}</span>` },
    { name: "Owner", show: (row) => row.owner },
    { name: "State", show: (row) => html`<${Mark} word=${stateWord(row)} />` },
    { name: "Where", isWide: true, className: "tx-where", show: (row) => inBrief(row) && html`<span class="quiet">${inBrief(row)}</span>` },
    { name: "Started", isNumber: true, show: (row) => html`<time title=${moment(row.created_ms)}>${ago(row.created_ms)}</time>` },
    { name: "Took", isNumber: true, show: (row) => duration((row.ended_ms ?? Date.now()) - row.created_ms) },
  ]} />`;
}

function Nothing({ tab, query, isLast }) {
  const isNarrowed = FILTERS.some((name) => query[name]);
  if (!isLast) return html`<${Empty} title="Not among those that were looked through">There are older ones: go on.<//>`;
  if (isNarrowed) {
    return html`<${Empty} title=${TABS[tab][2]}>
      ${query.external_id && tab !== "archived"
        ? html`It may have been archived: <a href=${link("/transactions", { ...query, tab: "archived", page: null })}>look there</a>.`
        : "Other filters may find some."}<//>`;
  }
  return html`<${Empty} title=${TABS[tab][2]}>
    <p>Start one of a pipeline that a worker has deployed:</p>
    <${Copied} text=${`penstock tx start checkout '{"total": 42}'`} /><//>`;
}

function NoArchive() {
  return html`<${Empty} title="This gateway has no archive">
    <p>Set <code>transactions.archiveDirectory</code> in its configuration, and let a worker write there:</p>
    <${Copied} text="penstock worker shop --archive ./archive" /><//>`;
}

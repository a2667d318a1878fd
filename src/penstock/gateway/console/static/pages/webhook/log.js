// The attempts of a webhook, newest first. Filters (`outcome`, `q`) look through everything that the store keeps of the log.

import { html } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { duration, moment } from "../../core/format.js";
import { useLoad } from "../../core/loading.js";
import { place } from "../../core/router.js";
import { OutcomeMark, answerOf } from "../../parts/hooks.js";
import { Empty, Loaded } from "../../parts/messages.js";
import { pagesOf } from "../../parts/paging.js";
import { Choice, Go, Search } from "../../parts/small.js";
import { Pager, Table } from "../../parts/table.js";

const PAGE = 50;
const MOST = 1_000;
const EVERY_MS = 3_000;
const OUTCOMES = [["", "All"], ["done", "Delivered"], ["failed", "Failed"], ["dead", "Given up"]];
const WANTED = { done: ["done"], failed: ["retry", "dead", "disable", "lost"], dead: ["dead", "disable"] };

export function Log({ id, query, change }) {
  const pages = pagesOf(query, change);
  const isFiltered = Boolean(query.outcome || query.q);
  const found = useLoad(
    () => (isFiltered ? search(id, query) : attempts(id, { cursor: pages.cursor, limit: PAGE })),
    [id, query.outcome, query.q, pages.cursor], { everyMs: EVERY_MS, isKept: true },
  );
  return html`
    <div class="filters">
      <${Choice} label="Outcome" of=${OUTCOMES} value=${query.outcome ?? ""} onChange=${(outcome) => change({ outcome, after: null })} />
      <${Search} label="Search attempts" placeholder="Event, delivery or answer" value=${query.q} onChange=${(q) => change({ q, after: null })} />
    </div>
    <${Loaded} of=${found}>
      ${(data) => data.attempts.length
        ? html`<${Table} label="Attempts" columns=${COLUMNS} rows=${data.attempts} keyOf=${(each) => each.number} />
            <${Pager} page=${data} cursors=${pages.cursors} onChange=${pages.onChange} />
            ${isFiltered && html`<p class="quiet">Of the newest ${MOST} attempts.</p>`}`
        : html`<${Empty} title=${isFiltered ? "No attempt is like that" : "Nothing was sent yet"}>
            ${isFiltered ? "Take a filter away." : "Publish a message to one of its channels, or send a test event."}
          <//>`}
    <//>
  `;
}

const attempts = (id, query) => api.get(path("/v1/webhooks/{}/deliveries", id), query);

async function search(id, { outcome, q = "" }) {
  const page = await attempts(id, { limit: MOST });
  const wanted = WANTED[outcome];
  const text = q.toLowerCase();
  const isFound = (each) =>
    (!wanted || wanted.includes(each.outcome)) &&
    [each.event, each.delivery, answerOf(each), each.excerpt].some((part) => part.toLowerCase().includes(text));
  return { attempts: page.attempts.filter(isFound).slice(0, 200), cursor: null };
}

const COLUMNS = [
  { name: "At", className: "when", show: (each) => moment(each.at_ms) },
  { name: "Event", isWide: true, show: (each) => html`<${Go} to=${place("/deliveries/{}", each.delivery)}>${each.event}<//>` },
  { name: "Attempt", isNumber: true, show: (each) => each.attempt },
  { name: "Outcome", show: (each) => html`<${OutcomeMark} outcome=${each.outcome} />` },
  { name: "Answer", isWide: true, show: answerOf },
  { name: "Took", isNumber: true, show: (each) => duration(each.duration_ms) },
];

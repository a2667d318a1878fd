// What waits to be delivered by a webhook, what is due first first.

import { html, useMemo } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { ago, moment } from "../../core/format.js";
import { useLoad } from "../../core/loading.js";
import { place } from "../../core/router.js";
import { StatusMark, answerOf } from "../../parts/hooks.js";
import { Empty, Loaded } from "../../parts/messages.js";
import { pagesOf } from "../../parts/paging.js";
import { Go } from "../../parts/small.js";
import { Pager, Table } from "../../parts/table.js";

const PAGE = 50;
const EVERY_MS = 2_500;

export function Waiting({ id, query, change }) {
  const pages = pagesOf(query, change);
  const found = useLoad(
    () => api.get(path("/v1/webhooks/{}/waiting", id), { cursor: pages.cursor, limit: PAGE }),
    [id, pages.cursor], { everyMs: EVERY_MS, isKept: true },
  );
  const list = useMemo(() => ({ ...found, data: found.data?.deliveries ?? null }), [found.data, found.error]);
  return html`<${Loaded} of=${list} empty=${html`<${Empty} title="Nothing waits">Every message was delivered or given up.<//>`}>
    ${(deliveries) => html`
      <${Table} label="Waiting deliveries" columns=${COLUMNS} rows=${deliveries} keyOf=${(each) => each.id} />
      <${Pager} page=${found.data} cursors=${pages.cursors} onChange=${pages.onChange} names=${["← Back", "More →"]} />
    `}
  <//>`;
}

const COLUMNS = [
  { name: "Event", isWide: true, show: (each) => html`<${Go} to=${place("/deliveries/{}", each.id)}>${each.event}<//>` },
  { name: "State", show: (each) => html`<${StatusMark} status=${each.status} />` },
  { name: "Made", className: "when", show: (each) => moment(each.created_ms) },
  { name: "Attempts", isNumber: true, show: (each) => each.attempts },
  { name: "Last answer", isWide: true, show: answerOf },
  { name: "Next attempt", isNumber: true, show: (each) => ago(each.due_ms) },
];

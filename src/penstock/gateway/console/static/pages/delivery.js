// One delivery of a webhook: what was sent, every attempt and its answer, when the next one is due; and a button to send it
// again.

import { html, useMemo } from "../core/view.js";
import { api, path } from "../core/api.js";
import { ago, duration, moment, number } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { place } from "../core/router.js";
import { useSession } from "../core/session.js";
import { ActionButton } from "../parts/dialogs.js";
import { Head } from "../parts/frame.js";
import { OutcomeMark, StatusMark, answerOf } from "../parts/hooks.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Go, Json } from "../parts/small.js";
import { Facts, Table } from "../parts/table.js";

const EVERY_MS = 2_000;
const LOG = 1_000;

export function Delivery({ route }) {
  const id = route.params.id;
  const { can } = useSession();
  const found = useLoad(() => api.get(path("/v1/deliveries/{}", id)), [id], { everyMs: EVERY_MS });
  const crumbs = [["Webhooks", "/webhooks"]];
  if (found.data) crumbs.push([found.data.webhook, place("/webhooks/{}", found.data.webhook)]);
  if (found.error?.code === "delivery-not-found") {
    return html`<${Head} title="Delivery" crumbs=${crumbs} /><${Empty} title="There is no such delivery (any more)">What is finished is kept for a while only.<//>`;
  }
  return html`
    <${Head} title=${found.data?.event ?? "Delivery"} crumbs=${crumbs}>
      ${can("operate") && found.data && html`<${Replay} delivery=${found.data} onDone=${found.reload} />`}
    <//>
    <${Loaded} of=${found}>
      ${(delivery) => html`
        <${Facts} items=${factsOf(delivery)} />
        <${Attempts} delivery=${delivery} />
        <h2>What is sent</h2>
        ${delivery.body === null ? html`<p class="quiet">It is not kept any more.</p>` : html`<${Json} value=${delivery.body} label="Body of the call" />`}
      `}
    <//>
  `;
}

const factsOf = (delivery) => [
  ["State", html`<${StatusMark} status=${delivery.status} />`],
  ["Next attempt", delivery.status === "waiting" ? `${ago(delivery.due_ms)} (${moment(delivery.due_ms)})` : null],
  ["Why it was given up", delivery.reason],
  ["Last answer", answerOf(delivery)],
  ["Attempts", number(delivery.attempts)],
  ["Sent again by people", number(delivery.replays)],
  ["Made", moment(delivery.created_ms)],
  ["Finished", delivery.finished_ms ? moment(delivery.finished_ms) : null],
  ["Delivery", html`<code>${delivery.id}</code>`],
];

/** The log is its webhook's; looked at again when something has happened to this delivery. */
function Attempts({ delivery }) {
  const { id, webhook, status, attempts, replays } = delivery;
  const found = useLoad(
    () => api.get(path("/v1/webhooks/{}/deliveries", webhook), { limit: LOG }),
    [id, status, attempts, replays], { isKept: true },
  );
  const list = useMemo(
    () => ({ ...found, data: found.data?.attempts.filter((each) => each.delivery === id) ?? null }),
    [found.data, found.error],
  );
  return html`<h2>Attempts</h2>
    <${Loaded} of=${list} empty=${html`<p class="quiet">${attempts ? "The log of its webhook has forgotten them." : "None yet."}</p>`}>
      ${(rows) => html`<${Table} label="Attempts" columns=${COLUMNS} rows=${rows} keyOf=${(each) => each.number} />`}
    <//>`;
}

const COLUMNS = [
  { name: "At", className: "when", show: (each) => moment(each.at_ms) },
  { name: "Attempt", isNumber: true, show: (each) => each.attempt },
  { name: "Outcome", show: (each) => html`<${OutcomeMark} outcome=${each.outcome} />` },
  { name: "Answer", isWide: true, className: "short", show: answerOf },
  { name: "Took", isNumber: true, show: (each) => duration(each.duration_ms) },
  { name: "Response", isWide: true, className: "message-cell", show: (each) => (each.excerpt ? html`<${Json} value=${each.excerpt} label="Response of attempt ${each.attempt}" />` : html`<span class="quiet">–</span>`) },
];

function Replay({ delivery, onDone }) {
  const question = {
    title: "Send this delivery again?", action: "Send again",
    text: delivery.status === "done" ? "The receiver has it already, and gets it again with the same webhook-id." : "It is tried anew, from the first attempt.",
  };
  return html`<${ActionButton} label="Send again" question=${question} isDisabled=${delivery.status === "leased"} after=${onDone}
    act=${() => api.post(path("/v1/deliveries/{}/replay", delivery.id))} done="It is on its way again." />`;
}

// One webhook: how it fares, its log of attempts, what waits, its definition; and the buttons that look after it.
// The tabs are in `webhook/`; which one is shown, and its filters, are in the address.

import { html } from "../core/view.js";
import { durationText } from "../core/amounts.js";
import { api, path } from "../core/api.js";
import { ago, duration, moment, number } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { link, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { Head } from "../parts/frame.js";
import { HookMark } from "../parts/hooks.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Go, Mark, Tabs } from "../parts/small.js";
import { Facts, Tiles } from "../parts/table.js";
import { Buttons } from "./webhook/buttons.js";
import { Log } from "./webhook/log.js";
import { Waiting } from "./webhook/waiting.js";

const EVERY_MS = 2_500;
const TABS = [["log", "Attempts"], ["waiting", "Waiting"], ["definition", "Definition"]];

export function Webhook({ route }) {
  const id = route.params.id;
  const [query, change] = useQuery(route);
  const { can } = useSession();
  const found = useLoad(() => api.get(path("/v1/webhooks/{}", id)), [id], { everyMs: EVERY_MS });
  const tab = TABS.some(([each]) => each === query.tab) ? query.tab : "log";
  const crumbs = [["Webhooks", "/webhooks"]];
  if (found.error?.code === "webhook-not-found") {
    return html`<${Head} title=${id} crumbs=${crumbs} />
      <${Empty} title="There is no webhook ${id}">It is deleted, or left the configuration. <${Go} to="/webhooks">All webhooks<//><//>`;
  }
  return html`
    <${Head} title=${found.data?.url ?? id} crumbs=${crumbs}>
      ${can("operate") && found.data && html`<${Buttons} webhook=${found.data} onDone=${found.reload} />`}
    <//>
    <${Loaded} of=${found}>
      ${(webhook) => html`
        <p class="states"><${HookMark} state=${webhook.state} /> <code>${id}</code> ${webhook.is_configured && html`<${Mark} word="configuration" />`}
          <span class="quiet">${storyOf(webhook.state)}</span></p>
        <${Tiles} items=${tilesOf(webhook)} />
        <${Tabs} label="Parts of the webhook" of=${TABS} value=${tab} placeOf=${(each) => link(route.place, { tab: each === "log" ? null : each })} />
        ${tab === "log" && html`<${Log} id=${id} query=${query} change=${change} />`}
        ${tab === "waiting" && html`<${Waiting} id=${id} query=${query} change=${change} />`}
        ${tab === "definition" && html`<${Definition} webhook=${webhook} />`}
      `}
    <//>
  `;
}

const tilesOf = ({ state, max_in_flight }) => [
  { name: "waiting", value: number(state.waiting) },
  { name: "being sent", value: number(state.in_flight), note: `at most ${number(max_in_flight)}` },
  { name: "delivered", value: number(state.delivered), note: state.ok_ms ? `last ${ago(state.ok_ms)}` : null },
  { name: "given up", value: number(state.dead), kind: state.dead ? "warn" : "" },
  { name: "failures in a row", value: number(state.failures), kind: state.failures ? "bad" : "" },
];

function storyOf(state) {
  if (state.disabled) return `Disabled ${state.disabled_ms ? ago(state.disabled_ms) : ""}: ${state.disabled}. What waits is kept.`;
  if (state.hold_ms > Date.now()) return `Nothing is sent before ${moment(state.hold_ms)}: it failed too often, or asked for a pause.`;
  if (state.failing_ms) return `Nothing has succeeded since ${moment(state.failing_ms)}.`;
  return "";
}

function Definition({ webhook }) {
  const headers = Object.keys(webhook.headers);
  return html`
    <${Facts} items=${[
      ["Address", webhook.url],
      ["Method", webhook.method],
      ["Channels", webhook.is_configured ? "as configured" : webhook.channels.join(", ")],
      ["Headers", headers.length ? headers.join(", ") : "none of its own"],
      ["Time of one attempt", duration(webhook.timeout_ms)],
      ["Calls at the same time", number(webhook.max_in_flight)],
      ["Attempts", number(webhook.schedule.delays_ms.length)],
      ["Pauses before them", webhook.schedule.delays_ms.map(durationText).join(", ")],
      ["Secrets that sign", webhook.secrets ? number(webhook.secrets) : "none: calls are not signed"],
    ]} />
    ${webhook.is_configured && html`<p class="quiet">The gateway's configuration defines it; change it there.</p>`}
  `;
}

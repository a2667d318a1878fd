// All webhooks: where each goes, how it fares, what waits. Those of the gateway's configuration are here once they have had
// a message; they are changed there.

import { html, useMemo } from "../core/view.js";
import { api, path } from "../core/api.js";
import { ago, duration, number } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { go, place, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { ActionButton } from "../parts/dialogs.js";
import { Head } from "../parts/frame.js";
import { HookMark, definitionFields, definitionOf, showSecret } from "../parts/hooks.js";
import { Empty, Loaded } from "../parts/messages.js";
import { pagesOf } from "../parts/paging.js";
import { Copied, Go, Mark } from "../parts/small.js";
import { Pager, Table } from "../parts/table.js";

const PAGE = 25;
const EVERY_MS = 4_000;

export function Webhooks({ route }) {
  const [query, change] = useQuery(route);
  const { can } = useSession();
  const pages = pagesOf(query, change);
  const found = useLoad(() => load(pages.cursor), [pages.cursor], { everyMs: EVERY_MS, isKept: true });
  const list = useMemo(() => ({ ...found, data: found.data?.webhooks ?? null }), [found.data, found.error]);
  return html`
    <${Head} title="Webhooks">${can("operate") && html`<${NewWebhook} />`}<//>
    <${Loaded} of=${list} empty=${html`<${NoWebhooks} />`}>
      ${(webhooks) => html`
        <${Table} label="Webhooks" columns=${COLUMNS} rows=${webhooks} keyOf=${(each) => each.id} />
        <${Pager} page=${found.data} cursors=${pages.cursors} onChange=${pages.onChange} names=${["← Back", "More →"]} />
      `}
    <//>
  `;
}

/** A page of webhooks with how each fares; one that is deleted meanwhile is left out. */
async function load(cursor) {
  const page = await api.get("/v1/webhooks", { configured: true, cursor, limit: PAGE });
  const webhooks = page.webhooks.map(({ id }) => api.get(path("/v1/webhooks/{}", id)).catch(() => null));
  return { cursor: page.cursor, webhooks: (await Promise.all(webhooks)).filter(Boolean) };
}

const COLUMNS = [
  { name: "Webhook", isWide: true, show: (each) => html`<div><${Go} to=${place("/webhooks/{}", each.id)}>${each.url}<//>
      <div class="quiet small-line">${each.id} ${each.is_configured && html`<${Mark} word="configuration" />`}</div></div>` },
  { name: "Channels", isWide: true, show: (each) => (each.is_configured ? "as configured" : each.channels.join(", ")) },
  { name: "State", show: (each) => html`<${HookMark} state=${each.state} />` },
  { name: "Last outcome", show: ({ state }) => lastOutcome(state) },
  { name: "Waiting", isNumber: true, show: ({ state }) => number(state.waiting + state.in_flight) },
  { name: "Delivered", isNumber: true, show: ({ state }) => number(state.delivered) },
  { name: "Given up", isNumber: true, show: ({ state }) => number(state.dead) },
];

function lastOutcome(state) {
  if (state.failing_ms) return `failing for ${duration(Math.max(1_000, Date.now() - state.failing_ms))}`;
  return state.ok_ms ? `delivered ${ago(state.ok_ms)}` : html`<span class="quiet">none yet</span>`;
}

function NoWebhooks() {
  const command = `curl -X POST ${new URL("../v1/webhooks", document.baseURI)} -d '{"url": "https://example.com/in", "channels": ["room-*"]}'`;
  return html`<${Empty} title="There are no webhooks">
    A webhook is called for each new message of its channels: <${Copied} text=${command} />
    Those of the gateway's configuration appear with their first message.
  <//>`;
}

function NewWebhook() {
  const question = {
    title: "New webhook", action: "Make it", cancel: "Not now",
    text: "It is called for each new message of these channels, and its calls are signed. Only public addresses are called; inner ones need the gateway's configuration.",
    fields: definitionFields(),
  };
  const after = async ({ webhook, secret }) => {
    await showSecret(secret);
    go(place("/webhooks/{}", webhook.id));
  };
  return html`<${ActionButton} label="New webhook" className="main" question=${question} act=${(values) => api.post("/v1/webhooks", definitionOf(values))}
    done="The webhook is made." after=${after} />`;
}

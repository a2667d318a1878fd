// All channels that somebody uses: how many messages each has had, who subscribes, how much is unread.

import { html, useMemo } from "../core/view.js";
import { api, path } from "../core/api.js";
import { duration, number } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { go, place, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { ActionButton } from "../parts/dialogs.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { globOf, pagesOf } from "../parts/paging.js";
import { Copied, Go, Search } from "../parts/small.js";
import { Pager, Table } from "../parts/table.js";

const PAGE = 25;
const EVERY_MS = 4_000;
const NAME = /^[0-9a-z][0-9a-z_-]{0,62}$/;

export function Channels({ route }) {
  const [query, change] = useQuery(route);
  const { can } = useSession();
  const pages = pagesOf(query, change);
  const found = useLoad(() => load(query.q, pages.cursor), [query.q, pages.cursor], { everyMs: EVERY_MS, isKept: true });
  const list = useMemo(() => ({ ...found, data: found.data?.channels ?? null }), [found.data, found.error]);
  return html`
    <${Head} title="Channels">${can("operate") && html`<${OpenChannel} />`}<//>
    <div class="filters"><${Search} label="Search channels" value=${query.q} onChange=${(q) => change({ q, after: null })} /></div>
    <${Loaded} of=${list} empty=${html`<${NoChannels} isSearched=${Boolean(query.q)} />`}>
      ${(channels) => html`
        <${Table} label="Channels" columns=${COLUMNS} rows=${channels} keyOf=${(each) => each.name} />
        <${Pager} page=${found.data} cursors=${pages.cursors} onChange=${pages.onChange} names=${["← Back", "More →"]} />
      `}
    <//>
  `;
}

/** A page of names, and what each of them is; one that goes meanwhile has nothing but its name. */
async function load(text, cursor) {
  const page = await api.get("/v1/channels", { match: globOf(text), cursor, limit: PAGE });
  const channels = page.channels.map((name) => api.get(path("/v1/channels/{}", name)).catch(() => ({ name, subscriptions: [] })));
  return { cursor: page.cursor, channels: await Promise.all(channels) };
}

const unread = (channel) => channel.subscriptions.reduce((most, each) => Math.max(most, each.unread), 0);

const COLUMNS = [
  { name: "Channel", isWide: true, show: (each) => html`<${Go} to=${place("/channels/{}", each.name)}>${each.name}<//>` },
  { name: "Clock", isNumber: true, show: (each) => number(each.clock) },
  { name: "Subscribers", isNumber: true, show: (each) => number(each.subscriptions.length) },
  { name: "Most unread", isNumber: true, show: (each) => number(unread(each)) },
  { name: "Forgotten in", isNumber: true, show: (each) => duration(each.ttl_ms) },
];

function NoChannels({ isSearched }) {
  if (isSearched) return html`<${Empty} title="No channel has such a name">A <code>*</code> stands for anything: <code>room-*</code>.<//>`;
  return html`<${Empty} title="Nobody uses a channel now">
    Subscribe, then publish: <${Copied} text=${`curl -X PUT ${new URL("../v1/channels/kitchen/subscriptions/ann", document.baseURI)}`} />
  <//>`;
}

function OpenChannel() {
  const question = {
    title: "Open a channel", action: "Open", cancel: "Not now",
    text: "A channel need not be made: it is there once somebody subscribes or publishes.",
    fields: [{ name: "name", label: "Name", hint: "1 to 63 of 0-9 a-z _ -, a digit or letter first." }],
  };
  const act = ({ name }) => {
    if (!NAME.test(name)) throw new Error("Name: 1 to 63 of 0-9 a-z _ -, a digit or letter first.");
    return name;
  };
  return html`<${ActionButton} label="Open a channel" question=${question} act=${act}
    done=${(name) => `This is channel ${name}.`} after=${(name) => go(place("/channels/{}", name))} />`;
}

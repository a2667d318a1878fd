// All streams: how much is in each, how fast it grows, who reads. New ones are made here.

import { html, useMemo } from "../core/view.js";
import { ApiError, api, path } from "../core/api.js";
import { parseCount, parseDuration, parseSize } from "../core/amounts.js";
import { ago, bytes, number } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { go, place, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { ActionButton } from "../parts/dialogs.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { globOf, pagesOf } from "../parts/paging.js";
import { Copied, Go, Search } from "../parts/small.js";
import { Pager, Table } from "../parts/table.js";

const PAGE = 50;
const EVERY_MS = 3_000;

export function Streams({ route }) {
  const [query, change] = useQuery(route);
  const { can } = useSession();
  const pages = pagesOf(query, change);
  const found = useLoad(
    () => api.get("/v1/streams", { details: true, match: globOf(query.q), cursor: pages.cursor, limit: PAGE }),
    [query.q, pages.cursor],
    { everyMs: EVERY_MS, isKept: true },
  );
  const list = useMemo(() => ({ ...found, data: found.data?.streams ?? null }), [found.data, found.error]);
  return html`
    <${Head} title="Streams">${can("operate") && html`<${NewStream} />`}<//>
    <div class="filters"><${Search} label="Search streams" value=${query.q} onChange=${(q) => change({ q, after: null })} /></div>
    <${Loaded} of=${list} empty=${html`<${NoStreams} isSearched=${Boolean(query.q)} />`}>
      ${(streams) => html`
        <${Table} label="Streams" columns=${COLUMNS} rows=${streams} keyOf=${(each) => each.name} />
        <${Pager} page=${found.data} cursors=${pages.cursors} onChange=${pages.onChange} names=${["← Back", "More →"]} />
      `}
    <//>
  `;
}

const COLUMNS = [
  { name: "Stream", isWide: true, show: (each) => html`<${Go} to=${place("/streams/{}", each.name)}>${each.name}<//>` },
  { name: "Messages", isNumber: true, show: (each) => number(each.messages) },
  { name: "Size", isNumber: true, show: (each) => bytes(each.bytes) },
  { name: "Written a second", isNumber: true, show: (each) => number(each.rate) },
  { name: "First", isNumber: true, show: (each) => number(each.first) },
  { name: "Last", isNumber: true, show: (each) => number(each.last) },
  { name: "Groups", isNumber: true, show: (each) => number(each.groups) },
  { name: "Last written", isNumber: true, show: (each) => ago(each.last_ms) },
];

function NoStreams({ isSearched }) {
  if (isSearched) return html`<${Empty} title="No stream has such a name">A <code>*</code> stands for anything: <code>orders-*</code>.<//>`;
  return html`<${Empty} title="There are no streams yet">
    The first message makes one: <${Copied} text=${'penstock stream write ./shop.pen orders \'{"id": 1}\''} />
  <//>`;
}

function NewStream() {
  const question = {
    title: "New stream",
    text: "What is left empty has no limit. All of it can be changed later.",
    action: "Make it",
    cancel: "Not now",
    fields: [
      { name: "name", label: "Name" },
      { name: "retain_count", label: "Keep at most so many messages", isOptional: true },
      { name: "retain_ms", label: "Keep for", isOptional: true, hint: "Such as 7d, 12h or 30m." },
      { name: "retain_bytes", label: "Keep at most so many bytes", isOptional: true, hint: "Such as 500 MB." },
    ],
  };
  const act = async ({ name, ...limits }) => {
    const wishes = {
      retain_count: parseCount(limits.retain_count, "Keep at most so many messages"),
      retain_ms: parseDuration(limits.retain_ms, "Keep for"),
      retain_bytes: parseSize(limits.retain_bytes, "Keep at most so many bytes"),
    };
    if (await exists(name)) throw new Error(`There is a stream ${name} already; its page changes what it keeps.`);
    return api.put(path("/v1/streams/{}", name), wishes);
  };
  return html`<${ActionButton} label="New stream" className="main" question=${question} act=${act}
    done=${(made) => `Stream ${made.name} is made.`} after=${(made) => go(place("/streams/{}", made.name))} />`;
}

async function exists(name) {
  try {
    await api.get(path("/v1/streams/{}/info", name));
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404 && error.code === "stream-not-found") return false;
    throw error;
  }
}

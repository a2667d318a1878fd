// One channel: its clock, who subscribes and what each has not read (looked at without consuming it), and a field to
// publish a test message. The address says whose unread messages are shown: `subscriber`.

import { html, useState } from "../core/view.js";
import { api, path } from "../core/api.js";
import { duration, number, plural } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { link, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { ActionButton } from "../parts/dialogs.js";
import { Entry } from "../parts/entry.js";
import { Head } from "../parts/frame.js";
import { Empty, Failure, Loaded, tell } from "../parts/messages.js";
import { pagesOf } from "../parts/paging.js";
import { Copied, Go } from "../parts/small.js";
import { Pager, Table, Tiles } from "../parts/table.js";

const EVERY_MS = 2_500;
const PAGE = 20;

export function Channel({ route }) {
  const name = route.params.name;
  const [query, change] = useQuery(route);
  const { can } = useSession();
  const state = useLoad(() => load(name), [name], { everyMs: EVERY_MS });
  return html`
    <${Head} title=${name} crumbs=${[["Channels", "/channels"]]}>
      ${can("operate") && html`<${Subscribe} name=${name} onMade=${state.reload} />`}
    <//>
    <${Loaded} of=${state}>
      ${(channel) => html`
        ${channel.isUsed && html`<${Tiles} items=${tilesOf(channel)} />`}
        <h2>Subscribers</h2>
        ${channel.subscriptions.length
          ? html`<${Table} label="Subscribers" columns=${columns(route, name, can("operate"), state.reload)} rows=${channel.subscriptions} keyOf=${(each) => each.subscriber} />`
          : html`<${NoSubscribers} name=${name} isUsed=${channel.isUsed} />`}
        ${query.subscriber && html`<${Backlog} key=${query.subscriber} name=${name} subscriber=${query.subscriber} query=${query} change=${change} clock=${channel.clock} />`}
      `}
    <//>
    ${can("operate") && html`<${Publishing} name=${name} onPublished=${state.reload} />`}
    <${Origin} />
  `;
}

/** The channel; one that nobody uses is an empty one. */
async function load(name) {
  try {
    return { ...(await api.get(path("/v1/channels/{}", name))), isUsed: true };
  } catch (error) {
    if (error.code !== "channel-not-found") throw error;
    return { name, clock: 0, ttl_ms: null, subscriptions: [], isUsed: false };
  }
}

const tilesOf = (channel) => [
  { name: "clock", value: number(channel.clock), note: "of its last message" },
  { name: "subscribers", value: number(channel.subscriptions.length) },
  { name: "most unread", value: number(channel.subscriptions.reduce((most, each) => Math.max(most, each.unread), 0)) },
  { name: "forgotten in", value: duration(channel.ttl_ms), note: "unless somebody uses it" },
];

const columns = (route, name, isOperator, reload) => [
  { name: "Subscriber", isWide: true, show: (each) => each.subscriber },
  { name: "Unread", isNumber: true, show: (each) => number(each.unread) },
  { name: "", className: "row-actions", show: (each) => html`<span class="buttons" role="group" aria-label="Subscriber ${each.subscriber}">
      <a class="button small" href=${link(route.place, { subscriber: each.subscriber })}>Look at unread</a>
      ${isOperator && html`<${Unsubscribe} name=${name} subscription=${each} onRemoved=${reload} />`}
    </span>` },
];

function NoSubscribers({ name, isUsed }) {
  const command = `curl -X PUT ${new URL(`../v1/channels/${encodeURIComponent(name)}/subscriptions/ann`, document.baseURI)}`;
  return html`<${Empty} title=${isUsed ? "Nobody subscribes" : "Nobody uses this channel now"}>
    A subscriber gets what is published after it was made: <${Copied} text=${command} />
  <//>`;
}

// ------------------------------------------------------------------------------------------ unread messages

function Backlog({ name, subscriber, query, change, clock }) {
  const pages = pagesOf(query, change);
  const found = useLoad(
    () => api.get(path("/v1/channels/{}/subscriptions/{}/backlog", name, subscriber), { limit: PAGE, cursor: pages.cursor }),
    [pages.cursor, clock], { isKept: true, everyMs: EVERY_MS },
  );
  return html`
    <h2 class="long">Unread by ${subscriber} <button class="small" onClick=${() => change({ subscriber: null, after: null })}>Close</button></h2>
    <${Loaded} of=${found}>
      ${(data) => data.messages.length
        ? html`
          <${Table} label="Unread messages" columns=${MESSAGES} rows=${data.messages} keyOf=${(each) => each.id} />
          <${Pager} page=${data} cursors=${pages.cursors} onChange=${pages.onChange} names=${["← Back", "More →"]} />
          <p class="quiet long">${plural(data.unread, "message")} unread. Looking changes nothing: ${subscriber} still gets them.</p>`
        : html`<p class="quiet">${data.unread ? "What is unread has expired." : "Everything is read."}</p>`}
    <//>
  `;
}

const MESSAGES = [
  { name: "Clock", isNumber: true, show: (each) => each.clock },
  { name: "Id", isWide: true, className: "short", show: (each) => each.id },
  { name: "Content", isWide: true, className: "message-cell", show: (each) => html`<${Entry} message=${{ offset: each.id, data: JSON.stringify(each.content) }} />` },
];

// ------------------------------------------------------------------------------------------ what operators do

function Subscribe({ name, onMade }) {
  const question = {
    title: `Subscribe to ${name}`, action: "Subscribe", cancel: "Not now",
    fields: [{ name: "subscriber", label: "Subscriber", hint: "It gets what is published from now on." }],
  };
  return html`<${ActionButton} label="Subscribe" question=${question} after=${onMade} done=${(made) => `${made.subscriber} subscribes.`}
    act=${({ subscriber }) => api.put(path("/v1/channels/{}/subscriptions/{}", name, subscriber.trim()))} />`;
}

function Unsubscribe({ name, subscription, onRemoved }) {
  const { subscriber, unread } = subscription;
  const question = {
    title: `Unsubscribe ${subscriber}?`, action: "Unsubscribe",
    text: `Its place in the channel goes, with ${plural(unread, "unread message")}; whoever waits as ${subscriber} is told.`,
  };
  return html`<${ActionButton} label="Unsubscribe" className="small" isDangerous question=${question} after=${onRemoved}
    done=${`${subscriber} subscribes no more.`} act=${() => api.delete(path("/v1/channels/{}/subscriptions/{}", name, subscriber))} />`;
}

function Publishing({ name, onPublished }) {
  const [id, setId] = useState("");
  const [text, setText] = useState('{"hello": "world"}');
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      const made = await publish(name, id.trim(), text);
      setError(null);
      tell(made.duplicate ? `Message ${made.id} was published before; nothing changed.` : `Message ${made.id} is published.`);
      await onPublished();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<details class="card drawer">
    <summary>Publish a test message</summary>
    <form class="sheet" onSubmit=${submit}>
      <label class="field"><span>Id <small class="quiet">optional</small></span>
        <input value=${id} onInput=${(event) => setId(event.target.value)} />
        <small class="quiet">With an id it is safe to repeat: the second time nothing happens.</small></label>
      <label class="field"><span>Content</span>
        <textarea rows="4" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
      <${Failure} error=${error} />
      <div class="buttons"><button class="main">Publish</button></div>
    </form>
  </details>`;
}

function publish(name, id, text) {
  let content;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new Error(`The content is not JSON: ${error.message}. Text needs quotes: "hello".`);
  }
  return api.post(path("/v1/channels/{}/messages", name), content, { query: { id } });
}

function Origin() {
  return html`<p class="quiet note">How long messages are kept, who may use a channel and which webhooks it has is said by the gateway's
    configuration: all entries under <code>channels</code> whose <code>regex</code> matches the name; the longest
    ${" "}<code>expire</code> of them counts. Without any, messages stay for 30 minutes. Webhooks that were made here are on <${Go} to="/webhooks">their page<//>.</p>`;
}

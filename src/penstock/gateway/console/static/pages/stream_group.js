// One group of a stream: how far it is, who reads, what was delivered and is not acknowledged; and what an operator can do
// about it.

import { html, useMemo } from "../core/view.js";
import { durationText, parseCount, parseDuration, parseList } from "../core/amounts.js";
import { api, path } from "../core/api.js";
import { duration, number, plural } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { go, place, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { ActionButton } from "../parts/dialogs.js";
import { Head } from "../parts/frame.js";
import { Lag } from "../parts/lag.js";
import { Empty, Loaded } from "../parts/messages.js";
import { pagesOf } from "../parts/paging.js";
import { Go } from "../parts/small.js";
import { Facts, Pager, Table, Tiles } from "../parts/table.js";

const EVERY_MS = 2_500;
const PAGE = 20;

export function StreamGroup({ route }) {
  const { name: stream, group } = route.params;
  const { can } = useSession();
  const state = useLoad(
    async () => {
      const [found, { info }] = await Promise.all([api.get(groupPath(stream, group)), api.get(path("/v1/streams/{}/info", stream))]);
      return { ...found, info };
    },
    [stream, group], { everyMs: EVERY_MS },
  );
  const crumbs = [["Streams", "/streams"], [stream, place("/streams/{}", stream)]];
  const isGone = ["group-not-found", "stream-not-found"].includes(state.error?.code);
  if (isGone) {
    return html`<${Head} title=${group} crumbs=${crumbs} />
      <${Empty} title="There is no group ${group}">It is removed, or nobody has read with it. <${Go} to=${place("/streams/{}", stream)} query=${{ tab: "groups" }}>All groups of ${stream}<//><//>`;
  }
  return html`
    <${Head} title=${group} crumbs=${crumbs}>
      ${can("operate") && state.data && html`
        <${ChangeOptions} stream=${stream} options=${state.data.group} after=${state.reload} />
        <${Remove} stream=${stream} state=${state.data.group} />
      `}
    <//>
    <${Loaded} of=${state}>
      ${({ group: facts, consumers, info }) => html`
        <${Tiles} items=${tilesOf(facts, info)} />
        <${Facts} items=${factsOf(facts)} />
        <h2>Readers</h2>
        ${consumers.length
          ? html`<${Table} label="Readers" columns=${READERS} rows=${consumers} keyOf=${(each) => each.name} />`
          : html`<p class="quiet">Nobody has read with a name yet.</p>`}
        <${Pending} stream=${stream} group=${group} facts=${facts} consumers=${consumers} route=${route} onSettled=${state.reload} />
      `}
    <//>
  `;
}

const groupPath = (stream, group, more = "") => path(`/v1/streams/{}/groups/{}${more}`, stream, group);

const tilesOf = (facts, info) => [
  { name: "lag", value: html`<${Lag} lag=${facts.lag} of=${info.length} />`, note: "messages not delivered yet" },
  { name: "pending", value: number(facts.pending), kind: facts.pending >= facts.max_pending ? "bad" : "", note: `at most ${number(facts.max_pending)}` },
  { name: "next offset", value: facts.cursor, note: `the stream ends at ${info.last}` },
  { name: "given up", value: number(facts.dead), kind: facts.dead ? "warn" : "" },
];

const factsOf = (facts) => [
  ["Acknowledged below", facts.ack_offset],
  ["Delivered", number(facts.delivered)],
  ["Acknowledged", number(facts.acked)],
  ["Expired", number(facts.expired)],
  ["Gone before delivery", number(facts.lost)],
  ["Idle for", duration(facts.idle_ms)],
  ["Removed when idle for", facts.ttl_ms ? duration(facts.ttl_ms) : "never"],
  ["One of a tag at a time", facts.ordered ? "yes" : "no"],
  ["Deliveries before giving up", facts.max_deliveries ? number(facts.max_deliveries) : "no limit"],
  ["Pauses between deliveries", facts.backoff_ms.length ? facts.backoff_ms.map(durationText).join(", ") : "as each reader says"],
  ["Dead letters go to", facts.dead_letter ? html`<${Go} to=${place("/streams/{}", facts.dead_letter)}>${facts.dead_letter}<//>` : "nowhere"],
];

const READERS = [
  { name: "Reader", isWide: true, show: (each) => each.name },
  { name: "Pending", isNumber: true, show: (each) => number(each.pending) },
  { name: "Delivered", isNumber: true, show: (each) => number(each.delivered) },
  { name: "Idle", isNumber: true, show: (each) => duration(each.idle_ms) },
];

// ------------------------------------------------------------------------------------------ what is pending

function Pending({ stream, group, facts, consumers, route, onSettled }) {
  const [query, change] = useQuery(route);
  const { can } = useSession();
  const pages = pagesOf(query, change);
  const found = useLoad(
    () => api.get(groupPath(stream, group, "/pending"), { consumer: query.consumer, cursor: pages.cursor, limit: PAGE }),
    [query.consumer, pages.cursor], { everyMs: EVERY_MS, isKept: true },
  );
  const list = useMemo(() => ({ ...found, data: found.data?.messages ?? null }), [found.data, found.error]);
  const settled = () => Promise.all([found.reload(), onSettled()]);
  const columns = can("operate") ? [...PENDING(stream), actionsOf(stream, group, facts, settled)] : PENDING(stream);
  return html`
    <h2>Pending</h2>
    ${consumers.length > 0 && html`<div class="filters"><label class="inline"><span class="quiet">Reader</span>
      <select aria-label="Reader" value=${query.consumer ?? ""} onChange=${(event) => change({ consumer: event.target.value, after: null })}>
        <option value="">all of them</option>
        ${consumers.map(({ name }) => html`<option value=${name} selected=${name === query.consumer}>${name}</option>`)}
      </select></label></div>`}
    <${Loaded} of=${list} empty=${html`<${Empty} title="Nothing is pending">Everything that was delivered is acknowledged, returned or given up.<//>`}>
      ${(messages) => html`
        <${Table} label="Pending messages" columns=${columns} rows=${messages} keyOf=${(each) => each.offset} />
        <${Pager} page=${found.data} cursors=${pages.cursors} onChange=${pages.onChange} names=${["← Back", "More →"]} />
      `}
    <//>
  `;
}

const PENDING = (stream) => [
  { name: "Offset", isNumber: true, show: (each) => html`<${Go} to=${place("/streams/{}", stream)} query=${{ offset: each.offset }}>${each.offset}<//>` },
  { name: "Reader", isWide: true, show: (each) => each.consumer },
  { name: "Deliveries", isNumber: true, show: (each) => number(each.deliveries) },
  { name: "First delivered", isNumber: true, show: (each) => `${duration(each.since_first_ms)} ago` },
  { name: "Again", isNumber: true, show: (each) => (each.due_in_ms > 0 ? `in ${duration(each.due_in_ms)}` : "when somebody reads") },
  { name: "Expires", isNumber: true, show: (each) => (each.expires_in_ms === null ? "never" : `in ${duration(each.expires_in_ms)}`) },
];

function actionsOf(stream, group, facts, after) {
  const settle = (word, offset, more = {}) => api.post(groupPath(stream, group, `/${word}`), { offsets: [offset], ...more });
  const said = (text) => ({ found }) => (found ? text : "It was not pending any more; nothing changed.");
  return {
    name: "",
    className: "row-actions",
    show: ({ offset, consumer }) => html`<span class="buttons" role="group" aria-label="Message ${offset}">
      <${ActionButton} label="Acknowledge" className="small" after=${after} done=${said(`Message ${offset} is acknowledged.`)}
        question=${{ title: `Acknowledge message ${offset}?`, text: `It counts as done, whether ${consumer} has done it or not.` }}
        act=${() => settle("ack", offset)} />
      <${ActionButton} label="Return" className="small" after=${after} done=${said(`Message ${offset} is returned.`)}
        question=${{ title: `Return message ${offset}?`, text: `It is taken from ${consumer} and goes to whoever reads next; if ${consumer} still works on it, it is done twice.` }}
        act=${() => settle("nack", offset)} />
      <${ActionButton} label="Reject" className="small" isDangerous after=${after} done=${said(`Message ${offset} is given up.`)}
        question=${{
          title: `Give message ${offset} up?`,
          text: facts.dead_letter ? `It is written to ${facts.dead_letter}, and this group never gets it again.` : "This group never gets it again, and has no stream for dead letters.",
          fields: [{ name: "reason", label: "Reason", value: "an operator gave it up" }],
        }}
        act=${({ reason }) => settle("reject", offset, { reason })} />
    </span>`,
  };
}

// ------------------------------------------------------------------------------------------ the group itself

function ChangeOptions({ stream, options, after }) {
  const question = {
    title: `Options of ${options.name}`, action: "Change them",
    fields: [
      { name: "max_pending", label: "Most pending messages", value: options.max_pending, kind: "number" },
      { name: "max_deliveries", label: "Deliveries before giving up", value: options.max_deliveries, kind: "number", hint: "0: no limit." },
      { name: "backoff_ms", label: "Pauses between deliveries", value: options.backoff_ms.map(durationText).join(", "), isOptional: true, hint: "Such as 1s, 5s, 30s; the last one repeats." },
      { name: "dead_letter", label: "Stream for dead letters", value: options.dead_letter, isOptional: true },
      { name: "ttl_ms", label: "Remove the group when idle for", value: durationText(options.ttl_ms), hint: "0: never." },
      { name: "ordered", label: "One of a tag at a time", value: options.ordered ? "yes" : "no", kind: "choice", choices: ["no", "yes"] },
    ],
  };
  const act = (values) =>
    api.put(groupPath(stream, options.name), {
      max_pending: parseCount(values.max_pending, "Most pending messages"),
      max_deliveries: parseCount(values.max_deliveries, "Deliveries before giving up"),
      backoff_ms: parseList(values.backoff_ms).map((each) => parseDuration(each, "Pauses between deliveries")),
      dead_letter: values.dead_letter.trim(),
      ttl_ms: parseDuration(values.ttl_ms, "Remove the group when idle for"),
      ordered: values.ordered === "yes",
    });
  return html`<${ActionButton} label="Change options" question=${question} act=${act} done="The options are changed." after=${after} />`;
}

function Remove({ stream, state }) {
  const question = {
    title: `Remove group ${state.name}?`, action: "Remove it",
    text: `Its position (offset ${state.cursor}) and ${plural(state.pending, "pending message")} are forgotten. Who reads with this name begins anew, at the first message there is.`,
  };
  return html`<${ActionButton} label="Remove group" isDangerous question=${question} act=${() => api.delete(groupPath(stream, state.name))}
    done=${`Group ${state.name} is removed.`} after=${() => go(place("/streams/{}", stream), { tab: "groups" })} />`;
}

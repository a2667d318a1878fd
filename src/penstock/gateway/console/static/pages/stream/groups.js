// The groups of a stream: how far each is behind, what is pending, who has gone quiet.

import { html, useMemo } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { duration, number } from "../../core/format.js";
import { useLoad } from "../../core/loading.js";
import { place } from "../../core/router.js";
import { useSession } from "../../core/session.js";
import { ActionButton } from "../../parts/dialogs.js";
import { Lag } from "../../parts/lag.js";
import { Empty, Loaded } from "../../parts/messages.js";
import { Copied, Go } from "../../parts/small.js";
import { Table } from "../../parts/table.js";

const EVERY_MS = 2_500;

export function Groups({ name, info }) {
  const { can } = useSession();
  const found = useLoad(() => api.get(path("/v1/streams/{}/groups", name)), [name], { everyMs: EVERY_MS });
  const list = useMemo(() => ({ ...found, data: found.data?.groups ?? null }), [found.data, found.error]);
  return html`
    ${can("operate") && html`<div class="filters"><${NewGroup} name=${name} onMade=${found.reload} /></div>`}
    <${Loaded} of=${list} empty=${html`<${NoGroups} name=${name} />`}>
      ${(groups) => html`<${Table} label="Groups" columns=${columns(name, info)} rows=${groups} keyOf=${(each) => each.name} />`}
    <//>
  `;
}

const columns = (name, info) => [
  { name: "Group", isWide: true, show: (each) => html`<${Go} to=${place("/streams/{}/groups/{}", name, each.name)}>${each.name}<//>` },
  { name: "Lag", isNumber: true, show: (each) => html`<${Lag} lag=${each.lag} of=${info.length} />` },
  { name: "Pending", isNumber: true, show: (each) => number(each.pending) },
  { name: "Next offset", isNumber: true, show: (each) => each.cursor },
  { name: "Acknowledged below", isNumber: true, show: (each) => each.ack_offset },
  { name: "Given up", isNumber: true, show: (each) => number(each.dead) },
  { name: "Idle", isNumber: true, show: (each) => duration(each.idle_ms) },
];

function NoGroups({ name }) {
  return html`<${Empty} title="No groups read this stream">
    A group shares messages among its readers and remembers what was done. Whoever reads first makes it:
    <${Copied} text=${`async for message in ps.stream("${name}").group("billing").consume(): …`} />
  <//>`;
}

function NewGroup({ name, onMade }) {
  const question = {
    title: "New group", action: "Make it", cancel: "Not now",
    fields: [
      { name: "group", label: "Name" },
      { name: "at", label: "Begins at", value: "earliest", hint: "earliest, now, or an offset." },
    ],
  };
  const act = ({ group, at }) =>
    api.put(path("/v1/streams/{}/groups/{}", name, group), { at: /^\d+$/.test(at) ? Number(at) : at.trim() });
  return html`<${ActionButton} label="New group" question=${question} act=${act} done=${(made) => `Group ${made.group.name} is there.`} after=${onMade} />`;
}

// One stream: its facts, its messages by offset or time, new ones as they come, its groups, its policy, its upkeep.
// The tabs are in `stream/`; which one is shown, and where it is, is in the address.

import { html, useRef } from "../core/view.js";
import { api, path } from "../core/api.js";
import { ago, bytes, number } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { link, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Copied, Tabs } from "../parts/small.js";
import { Tiles } from "../parts/table.js";
import { Following } from "./stream/following.js";
import { Groups } from "./stream/groups.js";
import { Messages } from "./stream/messages.js";
import { PolicyView } from "./stream/policy.js";
import { Upkeep } from "./stream/upkeep.js";

const EVERY_MS = 2_500;

export function Stream({ route }) {
  const name = route.params.name;
  const [query, change] = useQuery(route);
  const { can } = useSession();
  const state = useLoad(() => api.get(path("/v1/streams/{}/info", name)), [name], { everyMs: EVERY_MS });
  const rate = useRate(state.data);
  const isGone = state.error?.code === "stream-not-found";
  const tabs = [["messages", "Messages"], ["live", "Live"], ["groups", "Groups"], ["policy", "Policy"]];
  if (can("operate")) tabs.push(["upkeep", "Upkeep"]);
  const tab = tabs.some(([each]) => each === query.tab) ? query.tab : "messages";
  const head = html`<${Head} title=${name} crumbs=${[["Streams", "/streams"]]} />`;
  if (isGone) return html`${head}<${NoStream} name=${name} />`;
  return html`
    ${head}
    <${Loaded} of=${state}>
      ${({ info, policy }) => html`
        <${Tiles} items=${tilesOf(info, rate)} />
        <${Tabs} label="Parts of the stream" of=${tabs} value=${tab} placeOf=${(each) => link(route.place, { tab: each === "messages" ? null : each })} />
        ${tab === "messages" && html`<${Messages} name=${name} info=${info} query=${query} change=${change} onWritten=${state.reload} />`}
        ${tab === "live" && html`<${Following} name=${name} query=${query} change=${change} />`}
        ${tab === "groups" && html`<${Groups} name=${name} info=${info} />`}
        ${tab === "policy" && html`<${PolicyView} name=${name} policy=${policy} onChanged=${state.reload} />`}
        ${tab === "upkeep" && html`<${Upkeep} name=${name} info=${info} policy=${policy} onDone=${state.reload} />`}
      `}
    <//>
  `;
}

const tilesOf = (info, rate) => [
  { name: "messages", value: number(info.length) },
  { name: "on disk", value: bytes(info.bytes), note: `${bytes(info.raw_bytes)} written` },
  { name: "written a second", value: number(rate) },
  { name: "first offset", value: number(info.first), note: ago(info.first_ms) },
  { name: "last offset", value: number(info.last), note: ago(info.last_ms) },
  { name: "groups", value: number(info.groups) },
];

/** How fast the stream grows between two looks; null before the second one. */
function useRate(look) {
  const before = useRef({ look: null, at: 0, rate: null });
  if (look && look !== before.current.look) {
    const { look: old, at, rate } = before.current;
    const now = Date.now();
    const isLater = old && now - at >= EVERY_MS / 2;
    const grown = isLater ? Math.max(0, look.info.last - old.info.last) / ((now - at) / 1_000) : rate;
    if (!old || isLater) before.current = { look, at: now, rate: grown };
  }
  return before.current.rate;
}

function NoStream({ name }) {
  return html`<${Empty} title="There is no stream ${name}">
    It was never written, or is deleted. The first message makes it: <${Copied} text=${`penstock stream write ./shop.pen ${name} hello`} />
  <//>`;
}

// How long a stream keeps what, and how it is compacted; operators change it.

import { html } from "../../core/view.js";
import { durationText, parseCount, parseDuration, parseSize } from "../../core/amounts.js";
import { api, path } from "../../core/api.js";
import { bytes, number } from "../../core/format.js";
import { useSession } from "../../core/session.js";
import { ActionButton } from "../../parts/dialogs.js";
import { Facts } from "../../parts/table.js";

// Of each: its name in the API, what people call it, how it is shown, written into a field, and read from it.
const yesNo = (value) => (value ? "yes" : "no");
const TIME = { show: (value) => (value ? durationText(value) : "no limit"), write: durationText, read: parseDuration };
const SIZE = { show: (value) => (value ? bytes(value) : "no limit"), write: String, read: parseSize };
const COUNT = { show: (value) => (value ? number(value) : "no limit"), write: String, read: parseCount };
const FLAG = { show: yesNo, write: yesNo, read: (text) => text === "yes" };
const PLAIN = { ...COUNT, show: number };

const OPTIONS = [
  ["retain_ms", "Keep for", TIME, "0: no limit."],
  ["retain_count", "Keep at most so many messages", COUNT, "0: no limit."],
  ["retain_bytes", "Keep at most so many bytes", SIZE, "0: no limit."],
  ["retain_acked", "Keep what a group still needs", FLAG, "Whatever the limits above say."],
  ["compact", "Keep only the newest of each tag", FLAG],
  ["dirty_ratio", "Compact when so many percent are new", PLAIN],
  ["min_lag_ms", "Compact nothing younger than", { ...TIME, show: durationText }],
  ["max_lag_ms", "Compact at the latest after", TIME],
  ["tombstone_ms", "Keep tombstones for", TIME],
  ["node_messages", "Messages of a node", PLAIN],
  ["node_bytes", "Bytes of a node", { ...SIZE, write: String }],
];

export function PolicyView({ name, policy, onChanged }) {
  const { can } = useSession();
  return html`
    <${Facts} items=${OPTIONS.map(([key, label, kind]) => [label, kind.show(policy[key])])} />
    <p class="quiet">The store applies it in the background, by whole nodes; what is evicted is gone for every group.</p>
    ${can("operate") && html`<${ChangePolicy} name=${name} policy=${policy} onChanged=${onChanged} />`}
  `;
}

function ChangePolicy({ name, policy, onChanged }) {
  const fields = OPTIONS.map(([key, label, kind, hint]) => ({
    name: key, label, hint, value: kind.write(policy[key]),
    ...(kind === FLAG ? { kind: "choice", choices: ["no", "yes"] } : {}),
  }));
  const question = {
    title: `What ${name} keeps`, fields, action: "Change it",
    text: "Tighter limits evict messages soon after, and nothing brings them back.",
  };
  const act = (values) => {
    const wishes = OPTIONS.map(([key, label, kind]) => [key, kind.read(values[key], label)]);
    return api.put(path("/v1/streams/{}", name), Object.fromEntries(wishes.filter(([key, value]) => value !== policy[key])));
  };
  return html`<${ActionButton} label="Change policy" question=${question} act=${act} done="The policy is changed." after=${onChanged} />`;
}

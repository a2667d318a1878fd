// What takes messages out of a stream, for good: evict, compact, delete. Each asks, and says what will go.

import { html, useState } from "../../core/view.js";
import { parseCount, parseDuration } from "../../core/amounts.js";
import { api, path } from "../../core/api.js";
import { bytes, moment, number, plural } from "../../core/format.js";
import { go } from "../../core/router.js";
import { ActionButton } from "../../parts/dialogs.js";
import { firstAt } from "./reading.js";

export function Upkeep({ name, info, policy, onDone }) {
  return html`<div class="cards">
    <${Before} name=${name} onDone=${onDone} />
    <${Acknowledged} name=${name} onDone=${onDone} />
    <${Older} name=${name} onDone=${onDone} />
    <${Compaction} name=${name} policy=${policy} onDone=${onDone} />
    <${Deletion} name=${name} info=${info} />
  </div>`;
}

/** As it is when somebody asks: what the page shows may be seconds old. */
const infoNow = async (name) => (await api.get(path("/v1/streams/{}/info", name))).info;
const evict = (name, body) => api.post(path("/v1/streams/{}/evict", name), body);
const evicted = (result) => `Evicted: ${plural(result.evicted, "message")}.`;

/** What goes when everything before an offset goes. Holes are not counted, so it is a most. */
function losing(info, before) {
  const last = Math.min(before - 1, info.last);
  if (last < info.first) return "Nothing is that old: no message goes.";
  const most = Math.min(last - info.first + 1, info.length);
  return `Offsets ${info.first} to ${last} go: at most ${plural(most, "message")} of ${number(info.length)}. Nothing brings them back.`;
}

function Before({ name, onDone }) {
  const [text, setText] = useState("");
  const question = async () => {
    const before = parseCount(text, "Offset");
    if (before === undefined) throw new Error("Offset: write the first offset that stays.");
    return { title: `Evict from ${name}?`, text: losing(await infoNow(name), before), action: "Evict" };
  };
  return html`<section class="card upkeep">
    <h2>Evict before an offset</h2>
    <p class="quiet">This offset and what follows stay, also for groups that have not read the rest.</p>
    <label class="field"><span>First offset that stays</span>
      <input inputmode="numeric" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <${ActionButton} label="Evict before it" isDangerous question=${question}
      act=${() => evict(name, { before: parseCount(text, "Offset") })} done=${evicted} after=${onDone} />
  </section>`;
}

function Acknowledged({ name, onDone }) {
  const question = async () => {
    const [info, { groups }] = await Promise.all([infoNow(name), api.get(path("/v1/streams/{}/groups", name))]);
    const title = `Evict from ${name}?`;
    if (!groups.length) return { title, text: `No group reads the stream, so nobody needs anything: ${losing(info, info.last + 1)}`, action: "Evict" };
    const slowest = groups.reduce((least, each) => (each.ack_offset < least.ack_offset ? each : least));
    return { title, text: `${plural(groups.length, "group")}, the slowest is ${slowest.name}. ${losing(info, slowest.ack_offset)}`, action: "Evict" };
  };
  return html`<section class="card upkeep">
    <h2>Evict what all groups have done</h2>
    <p class="quiet">Whatever every group has acknowledged. What one of them has not read, or has pending, stays.</p>
    <${ActionButton} label="Evict acknowledged" isDangerous question=${question}
      act=${() => evict(name, { acked: true })} done=${evicted} after=${onDone} />
  </section>`;
}

function Older({ name, onDone }) {
  const [text, setText] = useState("7d");
  const question = async () => {
    const age = parseDuration(text, "Age");
    if (!age) throw new Error("Age: write a time such as 7d or 12h.");
    const since = Date.now() - age;
    const info = await infoNow(name);
    const first = (await firstAt(name, since)) ?? info.last + 1;
    return { title: `Evict from ${name}?`, text: `What was written before ${moment(since)}. ${losing(info, first)}`, action: "Evict" };
  };
  return html`<section class="card upkeep">
    <h2>Evict by age</h2>
    <p class="quiet">What was written longer ago than this.</p>
    <label class="field"><span>Age</span>
      <input value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <${ActionButton} label="Evict older" isDangerous question=${question}
      act=${() => evict(name, { age_ms: parseDuration(text, "Age") })} done=${evicted} after=${onDone} />
  </section>`;
}

function Compaction({ name, policy, onDone }) {
  const question = {
    title: `Compact ${name}?`, action: "Compact",
    text: "Of each tag only the newest message stays; the others go for good. Messages without a tag, pending ones and the newest node are not touched.",
  };
  return html`<section class="card upkeep">
    <h2>Compact</h2>
    <p class="quiet">${policy.compact ? "The store compacts this stream by itself; this does it now." : "Its policy does not compact; this does it once."}</p>
    <${ActionButton} label="Compact now" isDangerous question=${question} act=${() => api.post(path("/v1/streams/{}/compact", name))}
      done=${(result) => `Removed: ${plural(result.removed, "message")}.`} after=${onDone} />
  </section>`;
}

function Deletion({ name, info }) {
  const question = {
    title: `Delete ${name}?`, action: "Delete it",
    text: `All ${plural(info.length, "message")} (${bytes(info.bytes)}) and ${plural(info.groups, "group")} go. A new stream of this name begins at offset 1.`,
  };
  return html`<section class="card upkeep">
    <h2>Delete</h2>
    <p class="quiet">The stream, its messages, its groups and what they remember.</p>
    <${ActionButton} label="Delete stream" isDangerous question=${question} act=${() => api.delete(path("/v1/streams/{}", name))}
      done=${`Stream ${name} is deleted.`} after=${() => go("/streams")} />
  </section>`;
}

// The trail of a transaction, as it was written: every entry, oldest first.

import { html } from "../../core/view.js";
import { duration, moment } from "../../core/format.js";
import { Empty } from "../../parts/messages.js";
import { Mark } from "../../parts/small.js";
import { Table } from "../../parts/table.js";

const KINDS = { cancel: "warn", lost: "bad", replay: "busy", undo: "warn", wake: "busy", switch: "busy" };

export function Trail({ entries }) {
  if (!entries.length) return html`<${Empty} title="Nothing has happened to it yet">Its first step writes the first entry.<//>`;
  return html`<${Table} label="Trail" rows=${entries} columns=${[
    { name: "At", show: (each) => html`<time class="nowrap">${moment(each.at_ms)}</time>` },
    { name: "What", show: (each) => html`<${Mark} word=${each.kind} kind=${KINDS[each.kind] ?? "plain"} />` },
    { name: "Step", show: (each) => (Number.isInteger(each.step) ? `${each.step + 1} ${each.name}` : "") },
    { name: "Came of it", show: (each) => each.status && html`<${Mark} word=${each.status} />` },
    { name: "Attempt", isNumber: true, show: (each) => each.attempt || "" },
    { name: "Took", isNumber: true, show: (each) => (each.started_ms ? duration(each.at_ms - each.started_ms) : "") },
    { name: "Node group", show: (each) => each.group ?? "" },
    { name: "Worker", show: (each) => each.worker ?? "" },
    { name: "Note and logs", isWide: true, show: (each) => html`<div>${each.note ?? ""}
        ${(each.logs ?? []).map(([, level, text]) => html`<div class="quiet">${level}: ${text}</div>`)}</div>` },
  ]} />`;
}

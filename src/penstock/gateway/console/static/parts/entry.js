// What a message carries: one line that opens to all of it, as JSON, text or hexadecimal digits.
//
//     html`<${Entry} message=${message} view=${"json" | "text" | "hex"} />`
//     html`<${Table} columns=${messageColumns(view)} rows=${messages} … />`

import { html, useState } from "../core/view.js";
import { dataOf, hexDump, tagOf } from "../core/bytes.js";
import { moment, pretty } from "../core/format.js";
import { Mark } from "./small.js";

const LINE = 140;
export const VIEWS = [["json", "JSON"], ["text", "Text"], ["hex", "Hex"]];

export function Entry({ message, view = "json" }) {
  const [isOpen, setOpen] = useState(false);
  const bytes = dataOf(message);
  if (bytes === null) return html`<${Mark} word="tombstone" kind="warn" />`;
  const text = message.data ?? null;
  const label = `Message ${message.offset}`;
  return html`<details class="entry" onToggle=${(event) => setOpen(event.target.open)}>
    <summary aria-label=${label}><span class="entry-line">${lineOf(text, bytes, view)}</span></summary>
    ${isOpen && html`<pre class="json ${view === "hex" ? "hex" : ""}" tabindex="0" aria-label="${label}, all of it">${allOf(text, bytes, view)}</pre>`}
  </details>`;
}

function lineOf(text, bytes, view) {
  if (view === "hex" || text === null) return hexDump(bytes.subarray(0, 16)).slice(8) + (bytes.length > 16 ? " …" : "");
  const line = text.slice(0, LINE + 1).replace(/\s+/g, " ");
  return line.length > LINE ? `${line.slice(0, LINE)} …` : line || "(empty)";
}

function allOf(text, bytes, view) {
  if (view === "hex" || text === null) return hexDump(bytes);
  return view === "json" ? pretty(text) : text;
}

/** Columns of a table of messages. */
export const messageColumns = (view) => [
  { name: "Offset", isNumber: true, show: (each) => each.offset },
  { name: "Written", className: "when", show: (each) => moment(each.time) },
  { name: "Tag", isWide: true, className: "short", show: (each) => tagOf(each) || html`<span class="quiet">–</span>` },
  { name: "Message", isWide: true, className: "message-cell", show: (each) => html`<${Entry} message=${each} view=${view} />` },
];

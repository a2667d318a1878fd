// Small things in one line: marks of a state, JSON, a code that can be copied, a choice among few.

import { html, useState } from "../core/view.js";
import { pretty } from "../core/format.js";
import { link } from "../core/router.js";
import { tell } from "./messages.js";

const KINDS = {
  success: "good", live: "good", active: "good", delivered: "good", alive: "good", enabled: "good",
  failed: "bad", aborted: "bad", "internal-error": "bad", dead: "bad", "timeout": "bad", lost: "bad", disabled: "bad",
  cancelled: "warn", paused: "warn", waiting: "warn", sleeping: "calm", queued: "calm", running: "busy", joining: "busy", processing: "busy",
};

export function Mark({ word, kind }) {
  return html`<span class="mark ${kind ?? KINDS[word] ?? ""}">${word}</span>`;
}

export function Json({ value, label }) {
  if (value === undefined || value === null) return html`<span class="quiet">–</span>`;
  return html`<pre class="json" tabindex="0" aria-label=${label}>${pretty(value)}</pre>`;
}

export function Copied({ text }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text); // there only for https, and for this machine
      tell("Copied.");
    } catch {
      tell("This browser does not let the page copy: mark the text and copy it.", "bad");
    }
  };
  return html`<span class="copied"><code>${text}</code><button type="button" class="small" aria-label="Copy ${text}" onClick=${copy}>Copy</button></span>`;
}

/** Links that choose one of several; `of`: [["value", "Name"], …]. */
export function Tabs({ label, of, value, placeOf }) {
  return html`<div class="tabs" role="navigation" aria-label=${label}>
    ${of.map(([each, name]) => html`<a href=${placeOf(each)} aria-current=${each === value ? "true" : undefined}>${name}</a>`)}
  </div>`;
}

/** Buttons that choose one of several, in place. */
export function Choice({ label, of, value, onChange }) {
  return html`<div class="choice" role="radiogroup" aria-label=${label}>
    ${of.map(
      ([each, name]) => html`<button type="button" role="radio" aria-checked=${each === value} onClick=${() => onChange(each)}>${name}</button>`,
    )}
  </div>`;
}

/** A field that filters: tells of its value when somebody stops typing for a moment, or presses Enter. */
export function Search({ label, value = "", onChange, placeholder = label }) {
  const [text, setText] = useState(value);
  const submit = (event) => {
    event.preventDefault();
    onChange(text.trim());
  };
  return html`<form class="search" role="search" onSubmit=${submit}>
    <input type="search" aria-label=${label} placeholder=${placeholder} value=${text}
      onInput=${(event) => { setText(event.target.value); if (!event.target.value) onChange(""); }} />
  </form>`;
}

export const Go = ({ to, query, children }) => html`<a href=${link(to, query)}>${children}</a>`;

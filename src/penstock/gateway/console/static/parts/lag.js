// How far a group is behind its stream: a number and a small bar.

import { html } from "../core/view.js";
import { number } from "../core/format.js";

/** `of`: how many messages the stream has; the bar is full when a group has read none of them. */
export function Lag({ lag, of }) {
  const share = of > 0 ? Math.min(1, lag / of) : 0;
  const kind = lag === 0 ? "good" : share > 0.5 ? "bad" : "warn";
  return html`<span class="lag"><span>${number(lag)}</span>
    <span class="lag-bar ${kind}" aria-hidden="true"><span style=${{ width: `${Math.max(lag ? 4 : 0, share * 100)}%` }}></span></span></span>`;
}

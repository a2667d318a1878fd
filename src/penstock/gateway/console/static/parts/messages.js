// What pages say besides their data: nothing is here yet, it could not be loaded, it was done.

import { html, useEffect, useState } from "../core/view.js";

/** Where there is nothing: says so, and what to do about it. */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p><div>${children}</div></div>`;
}

export function Failure({ error }) {
  if (!error) return null;
  return html`<p class="failure" role="alert">${error.message}</p>`;
}

/** One of: loading, a failure, nothing, the data. */
export function Loaded({ of, empty, children }) {
  if (of.data === null) {
    return of.error ? html`<${Failure} error=${of.error} />` : html`<p class="quiet loading" role="status">Loading …</p>`;
  }
  const isEmpty = Array.isArray(of.data) && of.data.length === 0;
  return html`<${Failure} error=${of.error} />${isEmpty && empty ? empty : children(of.data)}`;
}

const SHOWN_MS = 6_000;
const listeners = new Set();

/** Tell at the edge of the screen; for a while. */
export function tell(text, kind = "good") {
  for (const listener of listeners) listener({ text, kind, id: crypto.getRandomValues(new Uint32Array(1))[0] });
}

export function Messages() {
  const [all, setAll] = useState([]);
  useEffect(() => {
    const listener = (message) => {
      setAll((old) => [...old.slice(-3), message]);
      setTimeout(() => setAll((old) => old.filter((each) => each.id !== message.id)), SHOWN_MS);
    };
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return html`<div class="messages" role="status" aria-live="polite">
    ${all.map((each) => html`<p key=${each.id} class="message ${each.kind}">${each.text}</p>`)}
  </div>`;
}

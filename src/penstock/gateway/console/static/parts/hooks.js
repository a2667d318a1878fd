// What the pages of webhooks share: the mark of a state, the fields of a definition, a secret that is shown once, outcomes.

import { html } from "../core/view.js";
import { durationText, parseCount, parseDuration, parseList } from "../core/amounts.js";
import { ask } from "./dialogs.js";
import { Copied, Mark } from "./small.js";

/** How an endpoint is: disabled, held back, failing, or well. */
export function HookMark({ state, now = Date.now() }) {
  if (state.disabled) return html`<${Mark} word="disabled" />`;
  if (state.hold_ms > now) return html`<${Mark} word="held back" kind="warn" />`;
  if (state.failing_ms) return html`<${Mark} word="failing" kind="bad" />`;
  return html`<${Mark} word="enabled" />`;
}

const OUTCOMES = {
  done: ["delivered", "good"], retry: ["failed, tried again", "warn"], dead: ["given up", "bad"],
  disable: ["given up, webhook disabled", "bad"], release: ["put off", "calm"], lost: ["worker died", "bad"],
};
const STATUSES = { done: ["delivered", "good"], dead: ["given up", "bad"], leased: ["being sent", "busy"], waiting: ["waiting", "calm"] };

export function OutcomeMark({ outcome }) {
  const [word, kind] = OUTCOMES[outcome] ?? [outcome, ""];
  return html`<${Mark} word=${word} kind=${kind} />`;
}

export function StatusMark({ status }) {
  const [word, kind] = STATUSES[status] ?? [status, ""];
  return html`<${Mark} word=${word} kind=${kind} />`;
}

/** What an attempt got: an HTTP status, or the error in its place. */
export const answerOf = ({ code, error }) => (code ? `HTTP ${code}` : (error ?? "–"));

// ------------------------------------------------------------------------------------------ definitions

/** Fields of a dialog for a new webhook, or for one that is there. */
export function definitionFields(webhook = null) {
  const headers = Object.entries(webhook?.headers ?? {}).map(([name, value]) => `${name}: ${value}`);
  return [
    { name: "url", label: "Address", value: webhook?.url, hint: "https://…" },
    { name: "channels", label: "Channels", value: webhook?.channels.join(", "), hint: "Names, or globs such as room-*; commas between." },
    { name: "method", label: "Method", value: webhook?.method ?? "POST", kind: "choice", choices: ["POST", "PUT", "PATCH"] },
    { name: "headers", label: "Headers", value: headers.join("\n"), kind: "area", isOptional: true, hint: "One a line, “name: value”. Values are never shown again: ******** keeps what was there." },
    { name: "timeout_ms", label: "Time of one attempt", value: durationText(webhook?.timeout_ms ?? 20_000) },
    { name: "max_in_flight", label: "Calls at the same time", value: String(webhook?.max_in_flight ?? 8) },
    { name: "delays_ms", label: "Pauses before the attempts", value: webhook?.schedule.delays_ms.map(durationText).join(", "), isOptional: true,
      hint: "Such as 0, 5s, 5m, 1h: as many attempts as pauses. Empty: for about three days." },
  ];
}

/** The definition that was typed; the jitter of a schedule stays what it was. */
export function definitionOf(values, webhook = null) {
  const delays_ms = parseList(values.delays_ms).map((each) => parseDuration(each, "Pauses before the attempts"));
  return {
    url: values.url.trim(),
    channels: parseList(values.channels),
    method: values.method,
    headers: Object.fromEntries(values.headers.split("\n").filter((line) => line.trim()).map(headerOf)),
    timeout_ms: parseDuration(values.timeout_ms, "Time of one attempt"),
    max_in_flight: parseCount(values.max_in_flight, "Calls at the same time"),
    schedule: delays_ms.length ? { delays_ms, jitter: webhook?.schedule.jitter ?? 0.1 } : null,
  };
}

function headerOf(line) {
  const colon = line.indexOf(":");
  if (colon < 1) throw new Error(`Headers: write “name: value”, not “${line}”.`);
  return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
}

export function showSecret(secret) {
  return ask({
    title: "The secret of this webhook",
    text: html`Receivers check signatures with it. It is shown this once: copy it now.<br /><${Copied} text=${secret} />`,
    action: "I have it",
    cancel: null,
  });
}

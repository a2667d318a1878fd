// What an operator does to a webhook. One that the gateway's configuration defines can be tried, disabled and replayed, not
// changed.

import { html } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { plural } from "../../core/format.js";
import { go, place } from "../../core/router.js";
import { ActionButton } from "../../parts/dialogs.js";
import { definitionFields, definitionOf, showSecret } from "../../parts/hooks.js";

export function Buttons({ webhook, onDone }) {
  const { id, state } = webhook;
  const post = (word, body) => api.post(path(`/v1/webhooks/{}/${word}`, id), body);
  return html`
    <${ActionButton} label="Send test event" act=${() => post("test")} done="A test event is on its way."
      after=${(delivery) => go(place("/deliveries/{}", delivery.id))} />
    <${ActionButton} label="Replay failed" act=${() => post("replay-failed")} after=${onDone} isDisabled=${!state.dead}
      question=${{ title: "Send again what was given up?", text: `Up to ${plural(state.dead, "delivery", "deliveries")} of which the store still knows; the receiver may get some of them twice.`, action: "Send again" }}
      done=${({ replayed }) => `On their way again: ${plural(replayed, "delivery", "deliveries")}.`} />
    ${(state.disabled || state.hold_ms > Date.now()) && html`<${Enable} post=${post} onDone=${onDone} />`}
    ${!state.disabled && html`<${Disable} post=${post} onDone=${onDone} />`}
    ${!webhook.is_configured && html`
      <${Change} webhook=${webhook} onDone=${onDone} />
      <${ActionButton} label="Rotate secret" act=${() => post("rotate-secret")} done="There is a new secret."
        question=${{ title: "Make a new secret?", text: "The one before goes on signing beside it until the next rotation; an older one stops at once.", action: "Make a new one" }}
        after=${async ({ secret }) => { await showSecret(secret); await onDone(); }} />
      <${ActionButton} label="Delete" isDangerous act=${() => api.delete(path("/v1/webhooks/{}", id))} done="The webhook is deleted."
        question=${{ title: "Delete this webhook?", text: `${webhook.url} gets nothing any more. Its log and ${plural(state.waiting, "waiting delivery", "waiting deliveries")} go with it.`, action: "Delete it" }}
        after=${() => go("/webhooks")} />
    `}
  `;
}

function Enable({ post, onDone }) {
  return html`<${ActionButton} label="Enable" act=${() => post("enable")} done="It is enabled: what waits is sent." after=${onDone} />`;
}

function Disable({ post, onDone }) {
  const question = {
    title: "Disable this webhook?", text: "Nothing is sent until it is enabled again. What waits is kept, and new messages wait, too.",
    fields: [{ name: "reason", label: "Reason", value: "an operator disabled it" }],
  };
  return html`<${ActionButton} label="Disable" isDangerous question=${question} act=${({ reason }) => post("disable", { reason })}
    done="It is disabled." after=${onDone} />`;
}

function Change({ webhook, onDone }) {
  const question = { title: "Change this webhook", fields: definitionFields(webhook), action: "Change it" };
  return html`<${ActionButton} label="Change" question=${question} after=${onDone} done="The webhook is changed."
    act=${(values) => api.put(path("/v1/webhooks/{}", webhook.id), definitionOf(values, webhook))} />`;
}

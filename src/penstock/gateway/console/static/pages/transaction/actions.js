// What people do to a transaction: each asks first, with a reason where the trail keeps one, and is offered only in
// the states in which the API does it (409 otherwise).

import { html } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { ActionButton } from "../../parts/dialogs.js";
import { hasEnded } from "./words.js";

const REASON = { name: "reason", label: "Reason", isOptional: true, hint: "Kept in the trail, with who asked for it." };

const at = (tx, verb) => path("/v1/transactions/{}/{}", tx.id, verb);

const SET = { woken: "is set, and it goes on.", updated: "is set.", nochange: "had this value." };

export function Buttons({ tx, after }) {
  const isOver = hasEnded(tx);
  const common = { after };
  return html`
    ${["sleeping", "waiting"].includes(tx.state) && html`<${ActionButton} label="Wake now" ...${common}
      question=${{ title: "Wake it now?", text: wakeText(tx), fields: [REASON] }}
      act=${({ reason }) => api.post(at(tx, "wake"), { reason })} done="It goes on." />`}
    ${!isOver && html`<${ActionButton} label="Set switch" ...${common}
      question=${{ title: "Set a switch", text: "Whoever waits for it goes on.", fields: [
        { name: "switch", label: "Switch", value: tx.awaits ?? "" }, { name: "value", label: "Value", isOptional: true }] }}
      act=${({ switch: name, value }) => api.put(path("/v1/transactions/{}/switches/{}", tx.id, name), { value })}
      done=${(set) => `${set.name} ${SET[set.outcome]}`} />`}
    ${!isOver && html`<${ActionButton} label="Change priority" ...${common}
      question=${{ title: "Change its priority", fields: [
        { name: "priority", label: "Priority", kind: "choice", choices: [..."9876543210"], value: `${tx.priority ?? 5}`, hint: "9 goes first." }] }}
      act=${({ priority }) => api.post(at(tx, "priority"), { priority: Number(priority) })}
      done=${(now) => `Its priority is ${now.priority ?? 5}.`} />`}
    ${isOver && tx.status !== "success" && !tx.parent && html`<${ActionButton} label="Retry" ...${common}
      question=${{ title: "Retry it?", text: "It goes on at the step that failed; at the first, if its steps were undone.", fields: [REASON] }}
      act=${({ reason }) => api.post(at(tx, "retry"), { reason })} done="It goes on." />`}
    ${!isOver && html`<${ActionButton} label="Cancel" isDangerous ...${common}
      question=${{ title: "Cancel it?", fields: [REASON], action: "Cancel it",
        text: "It ends as soon as its step lets go and what can be undone is undone. Its children end, too." }}
      act=${({ reason }) => api.post(at(tx, "cancel"), { reason })}
      done=${(now) => (hasEnded(now) ? "It is cancelled." : "It ends when its step lets go.")} />`}
  `;
}

const wakeText = (tx) =>
  tx.state === "waiting" ? "It looks at its switch, and waits on if that is not set." : "It does not sleep on, and goes on at once.";

/** What the button of a step does; null where nothing can be replayed. */
export function replayOf(tx, after) {
  if (!hasEnded(tx) || tx.parent) return null;
  return (step, name) => ({
    question: {
      title: `Replay from ${name}?`, fields: [REASON], action: "Replay",
      text: `It runs again from step ${step + 1}, with what that step was given. What came of it and of later steps is forgotten.`,
    },
    isDangerous: true,
    act: ({ reason }) => api.post(at(tx, "replay"), { step, reason }),
    done: `It goes on at step ${step + 1}.`,
    after,
  });
}

export function DeleteSwitch({ tx, name, after }) {
  return html`<${ActionButton} label="Delete" className="small" isDangerous after=${after} title="Delete the switch ${name}"
    question=${{ title: `Delete the switch ${name}?`, text: "It counts as not set then." }}
    act=${() => api.delete(path("/v1/transactions/{}/switches/{}", tx.id, name))} done="${name} is not set any more." />`;
}

// How pages word a transaction: its state in a word, and where it is now in a sentence. Pure.

import { ago, duration, moment, plural } from "../../core/format.js";

/** How it ended, or else where it is. */
export const stateWord = (tx) => (tx.state === "ended" ? tx.status : tx.state);

export const hasEnded = (tx) => tx.state === "ended";

/** Of which limit: "p:checkout" and its like. */
function limitName(held) {
  const [mark, ...rest] = held.split(":");
  return `${{ p: "pipeline", o: "owner", g: "node group" }[mark] ?? "limit"} ${rest.join(":")}`;
}

/** For a line of a list. */
export function inBrief(tx) {
  const step = `step ${(tx.step ?? 0) + 1}`;
  switch (tx.state) {
    case "queued":
      return tx.held ? `held back by the limit of ${limitName(tx.held)}` : `in the queue of ${tx.node_group}`;
    case "running":
      return `${step}${tx.attempt ? `, attempt ${tx.attempt + 1}` : ""}, with ${tx.worker ?? "a worker"}`;
    case "sleeping":
      return `${step}, goes on ${ago(tx.wakes_ms)}${tx.note ? `: ${tx.note}` : ""}`;
    case "waiting":
      return `for the switch ${tx.awaits ?? ""}`;
    case "joining":
      return `for the children of ${step}`;
    default:
      return tx.note ?? "";
  }
}

/** For the head of its page; `name` is that of its step, if it is known. */
export function whereNow(tx, name, children) {
  const step = name ? `step ${(tx.step ?? 0) + 1}, ${name}` : `step ${(tx.step ?? 0) + 1}`;
  const attempt = tx.attempt ? `, attempt ${tx.attempt + 1}` : "";
  switch (tx.state) {
    case "queued":
      return tx.held
        ? `Held back by the limit of ${limitName(tx.held)}, before ${step}.`
        : `In the queue of ${tx.node_group} since ${moment(tx.queued_ms)}, for ${step}.`;
    case "running":
      return `${tx.worker ?? "A worker"} of ${tx.node_group} runs ${step}${attempt}, since ${moment(tx.taken_ms)}.`;
    case "sleeping":
      return `Sleeps in ${step}${tx.attempt ? `, before attempt ${tx.attempt + 1}` : ""}; goes on ${ago(tx.wakes_ms)}, at ${moment(tx.wakes_ms)}.`;
    case "waiting":
      return `Waits in ${step} for the switch ${tx.awaits ?? ""}${tx.wakes_ms ? `, until ${moment(tx.wakes_ms)}` : ""}.`;
    case "joining": {
      const open = children?.filter((each) => !hasEnded(each)).length;
      return `Waits in ${step} for its children${open ? `: ${plural(open, "is", "are")} under way` : ""}.`;
    }
    default:
      return `Ended at ${moment(tx.ended_ms)}, after ${duration(tx.ended_ms - tx.created_ms)}.`;
  }
}

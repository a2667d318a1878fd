// What a box of the drawing says about its step: a kind, a name, and what matters about it. Pure.

import { duration } from "../../core/format.js";

const KINDS = {
  function: "function", delay: "sleep", wait: "wait for a switch", progress: "report progress", reply: "reply and end",
  "map-fields": "rearrange fields", "check-fields": "check fields", http: "call a URL", child: "child pipeline",
  router: "choose a pipeline", parallel: "branches at the same time", map: "for each item",
};

/** [{ text, kind: "kind" | "name" | "more" | "undo", pipeline }]; `pipeline` names one that the line leads to. */
export function linesOf(step, definition) {
  const lines = [{ text: KINDS[step.type] ?? step.type, kind: "kind" }, nameOf(step)];
  for (const text of about(step)) lines.push({ text, kind: "more" });
  if (step.node_group && step.node_group !== (definition.node_group ?? "default")) lines.push({ text: `on ${step.node_group}`, kind: "more" });
  const retry = step.retry ?? (step.type === "function" || step.type === "http" ? definition.retry : null);
  if (retry) lines.push({ text: `up to ${retry.limit ?? 3} attempts`, kind: "more" });
  if (step.timeout_ms && step.type !== "wait") lines.push({ text: `within ${duration(step.timeout_ms)}`, kind: "more" });
  if (step.compensate) lines.push({ text: `↩ undone by ${step.compensate}`, kind: "undo" });
  return lines;
}

function nameOf(step) {
  const name = step.type === "child" ? step.pipeline : step.type === "function" ? step.name : step.id;
  return { text: name || step.id || step.type, kind: "name", pipeline: step.type === "child" ? step.pipeline : undefined };
}

function about(step) {
  switch (step.type) {
    case "function":
      return step.id && step.id !== step.name ? [step.id] : [];
    case "delay":
      return [step.min_ms === undefined ? duration(step.ms) : `${duration(step.min_ms)} to ${duration(step.max_ms)}`];
    case "wait":
      return [
        `${step.switch}${step.timeout_ms ? `, up to ${duration(step.timeout_ms)}` : ""}`,
        ...(step.on_timeout === "continue" ? ["then goes on"] : []),
      ];
    case "http":
      return [`${step.method ?? "POST"} ${step.url ?? ""}`];
    case "router":
      return [`by ${step.field}`];
    case "map":
      return [`of ${step.field || "the data"}, ${step.at_once ?? 100} at once`];
    case "reply":
      return [step.status ?? "success", ...(step.note ? [step.note] : [])];
    case "map-fields":
      return [["copy", step.copy], ["set", step.set]].filter(([, part]) => part && Object.keys(part).length)
        .map(([word, part]) => `${word} ${Object.keys(part).join(", ")}`).concat(step.drop?.length ? [`drop ${step.drop.join(", ")}`] : []);
    case "check-fields":
      return [Object.keys(step.fields ?? {}).join(", ")];
    case "child":
      return step.version ? [`version ${step.version.slice(0, 8)}`] : [];
    default:
      return [];
  }
}

/** The ways of a router: each value with the pipeline it leads to. */
export function routesOf(step) {
  const child = (name) => [{ type: "child", pipeline: name, id: name }];
  const ways = Object.entries(step.routes ?? {}).map(([value, name]) => ({ label: `= ${value}`, steps: child(name) }));
  return step.default ? [...ways, { label: "otherwise", steps: child(step.default) }] : ways;
}

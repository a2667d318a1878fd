// Server-sent events with a credential, which EventSource cannot carry.
//
//     const stop = follow("/v1/overview/events", { overview: (data) => … , line: (word) => … });
//
// Comes again by itself, with the id of the last event, after a pause that grows. `line` hears "live", "waiting"
// (the line is lost) and "ended" (the gateway said that nothing more will come: the data of its event `end`).

import { address, headers, refusalOf } from "./api.js";

const LEAST_PAUSE_MS = 1_000;
const MOST_PAUSE_MS = 15_000;

export function follow(place, handlers, query = {}) {
  const aborting = new AbortController();
  run(place, query, handlers, aborting.signal);
  return () => aborting.abort();
}

async function run(place, query, handlers, signal) {
  const line = { lastId: "", pauseMs: LEAST_PAUSE_MS, isOver: false };
  while (!signal.aborted && !line.isOver) {
    try {
      await listen(place, query, handlers, signal, line);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) {
        handlers.line?.("ended", { reason: "refused", detail: error.message });
        return;
      }
    }
    if (signal.aborted || line.isOver) return;
    handlers.line?.("waiting");
    await pause(line.pauseMs, signal);
    line.pauseMs = Math.min(line.pauseMs * 2, MOST_PAUSE_MS);
  }
}

async function listen(place, query, handlers, signal, line) {
  const more = { accept: "text/event-stream" };
  if (line.lastId) more["last-event-id"] = line.lastId;
  const response = await fetch(address(place, query), { headers: headers(more), signal });
  if (!response.ok) throw await refusalOf(response);
  if (response.status === 204) {
    line.isOver = true;
    handlers.line?.("ended", { reason: "ended", detail: "nothing more will come" });
    return;
  }
  handlers.line?.("live");
  line.pauseMs = LEAST_PAUSE_MS;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    const blocks = buffer.split("\n\n");
    buffer = blocks.pop();
    for (const block of blocks) dispatch(block, handlers, line);
  }
}

function dispatch(block, handlers, line) {
  let name = "message";
  let data = "";
  for (const text of block.split("\n")) {
    const colon = text.indexOf(":");
    const field = text.slice(0, colon);
    const value = text.slice(colon + 1).replace(/^ /, "");
    if (field === "event") name = value;
    else if (field === "data") data += value;
    else if (field === "id") line.lastId = value;
  }
  if (!data) return; // a sign of life
  const parsed = JSON.parse(data);
  if (name === "end") {
    // A worker that stops, or a time that is over, is no end to whoever watches.
    line.isOver = !["shutdown", "time-over"].includes(parsed.reason);
    if (line.isOver) handlers.line?.("ended", parsed);
    return;
  }
  handlers[name]?.(parsed, line.lastId);
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

// Pages of a stream's messages. The API reads onwards; going back is looking at ever longer stretches before an offset.
//
// A page: { messages, from, next, first, last }: what was found from `from` on, where to go on, and what the stream has.

import { api, path } from "../../core/api.js";

const MOST = 1_000;
const TRIES = 6;

export async function pageFrom(name, offset, limit, tag) {
  const { info } = await api.get(path("/v1/streams/{}/info", name));
  const from = Math.max(offset, info.first);
  const found = await read(name, { offset: from, limit, tag });
  return { ...found, from, first: info.first, last: info.last };
}

/** The last messages before an offset; before Infinity: of all. Holes and tags make a stretch poor, so it grows. */
export async function pageBefore(name, offset, limit, tag) {
  const { info } = await api.get(path("/v1/streams/{}/info", name));
  const end = Math.min(offset, info.last + 1);
  let messages = [];
  let from = end;
  let stretch = limit;
  for (let attempt = 0; attempt < TRIES && from > info.first && messages.length < limit; attempt += 1) {
    from = Math.max(info.first, from - stretch);
    const found = await read(name, { offset: from, limit: Math.min(MOST, stretch), tag });
    const earliest = messages[0]?.offset ?? end;
    messages = [...found.messages.filter((each) => each.offset < earliest), ...messages];
    stretch = Math.min(MOST, stretch * 4);
  }
  return { messages: messages.slice(-limit), from, next: end, first: info.first, last: info.last };
}

/** The offset of the first message written at this moment or later; null if there is none. */
export async function firstAt(name, ms) {
  const found = await read(name, { at: ms, limit: 1 });
  return found.messages[0]?.offset ?? null;
}

const read = (name, query) => api.get(path("/v1/streams/{}", name), query);

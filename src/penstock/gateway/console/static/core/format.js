// Numbers, sizes, spans and moments as people read them. Pure.

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const DAY_MS = 86_400_000;
export const NOTHING = "–";

export const number = (value) => (value === null || value === undefined ? NOTHING : NUMBER.format(value));
export const compact = (value) =>
  value === null || value === undefined ? NOTHING : Math.abs(value) < 10_000 ? NUMBER.format(value) : COMPACT.format(value);

export function bytes(value) {
  if (value === null || value === undefined) return NOTHING;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (Math.abs(value) >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${NUMBER.format(value)} ${units[at]}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  const size = Math.abs(ms);
  if (size === 0) return "0 ms";
  if (size < 1) return `${Math.round(size * 1000)} µs`;
  if (size < 1_000) return `${NUMBER.format(ms)} ms`;
  if (size < 60_000) return `${NUMBER.format(ms / 1_000)} s`;
  if (size < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1_000)} s`;
  if (size < DAY_MS) return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
  return `${Math.floor(ms / DAY_MS)} d ${Math.floor((ms % DAY_MS) / 3_600_000)} h`;
}

/** Local time; with its date if that is not today's. */
export function moment(ms) {
  if (!ms) return NOTHING;
  const date = new Date(ms);
  const time = `${date.toLocaleTimeString("en-GB")}.${String(date.getMilliseconds()).padStart(3, "0")}`;
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString("en-CA")} ${time}`;
}

export function ago(ms, now = Date.now()) {
  if (!ms) return NOTHING;
  const gone = now - ms;
  return gone >= 0 ? `${duration(Math.max(1_000, Math.round(gone / 1_000) * 1_000))} ago` : `in ${duration(Math.round(-gone / 1_000) * 1_000)}`;
}

/** JSON on several lines; text that is none stays as it is. */
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

// What the overview draws, out of what the gateway tells. Pure, but for `History`, which remembers.
//
// Rates are a second. The slot that is not over yet counts by the time that went by, once a good part of it has; before
// that a single transaction would look like a crowd.

export const LEVELS = [["5s", "5 min"], ["60s", "2 hours"], ["600s", "1 day"]];
export const LEVEL_NAMES = { "5s": "five minutes", "60s": "two hours", "600s": "day" };

const SLOT_S = { "5s": 5, "60s": 60, "600s": 600 };
const LEAST_PART = 0.3;
const ENDINGS = {
  success: "good", failed: "bad", timeout: "warn", cancelled: "quiet", aborted: "quiet", "internal-error": "quiet",
};
/** Endings that are drawn even where nothing ended so. */
const ALWAYS = ["success", "failed"];
const GOOD = ["success", "cancelled"];
/** Lines of one drawing, and their colours. */
const COLOURS = ["accent", "calm", "good", "warn", "bad"];

/** What was queued, started and ended: { times, series } of a chart. */
export function rates(statistics) {
  const width = SLOT_S[statistics.level];
  const secondsOf = (slot) => Math.min(width, (statistics.now_ms - slot.start_ms) / 1000);
  const slots = statistics.slots.filter((slot) => secondsOf(slot) >= LEAST_PART * width);
  const values = (count) => slots.map((slot) => count(slot) / secondsOf(slot));
  const endings = Object.keys(ENDINGS).filter((each) => ALWAYS.includes(each) || statistics.total.ended[each]);
  return {
    times: timesOf(slots),
    series: [
      { name: "queued", colour: "calm", values: values((slot) => slot.queued) },
      { name: "started", colour: "accent", values: values((slot) => slot.started) },
      ...endings.map((each) => ({ name: each, colour: ENDINGS[each], values: values((slot) => slot.ended[each] ?? 0) })),
    ],
  };
}

/** Quantiles of `wait` or `latency`; nothing where nothing was counted. */
export function quantiles(statistics, what) {
  const line = (name, field, colour) =>
    ({ name, colour, values: statistics.slots.map((slot) => slot[what]?.[field] ?? null) });
  return {
    times: timesOf(statistics.slots),
    series: [line("p50", "p50_ms", "good"), line("p95", "p95_ms", "warn"), line("p99", "p99_ms", "bad")],
  };
}

const timesOf = (slots) => slots.map((slot) => slot.start_ms / 1000);

/** How many wait for workers of a node group. */
export const waitingIn = (group) => group.admin + group.out + group.in;

/** How many ended otherwise than well, or than somebody wished. */
export const failuresIn = (ended) => sum(Object.entries(ended).filter(([status]) => !GOOD.includes(status)));
export const endedIn = (ended) => sum(Object.entries(ended));
const sum = (entries) => entries.reduce((total, [, count]) => total + count, 0);

/** Numbers by name, as they were lately: what the gateway tells of now only. */
export class History {
  constructor(kept) {
    this.kept = kept;
    this.times = [];
    this.lines = new Map();
  }

  add(seconds, numbers) {
    if (seconds <= (this.times.at(-1) ?? 0)) return;
    for (const name of Object.keys(numbers)) {
      if (!this.lines.has(name)) this.lines.set(name, this.times.map(() => null));
    }
    this.times = [...this.times, seconds].slice(-this.kept);
    for (const [name, values] of this.lines) {
      const all = [...values, numbers[name] ?? null].slice(-this.kept);
      if (all.every((value) => value === null)) this.lines.delete(name);
      else this.lines.set(name, all);
    }
  }

  /** { times, series } of a chart: as many lines as can be told apart, those that matter most now. */
  drawn() {
    const largest = [...this.lines].sort(([, one], [, other]) => Math.max(...other) - Math.max(...one));
    const names = largest.slice(0, COLOURS.length).map(([name]) => name).sort();
    const series = names.map((name, at) => ({ name, colour: COLOURS[at], values: this.lines.get(name) }));
    return { times: this.times, series };
  }
}

// Spans of time, sizes and lists as people type them into a field: text in, numbers out, and back. Pure.
//
//     parseDuration("7d", "keep for")  ->  604800000          durationText(604800000)  ->  "7d"
//     parseSize("10 MB", "keep")       ->  10000000           parseCount("", "keep")   ->  undefined
//
// An empty field is undefined: it changes nothing. What makes no sense is an Error that names the field.

const SPANS = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1_000], ["ms", 1]];
const SIZES = { "": 1, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };

export function parseDuration(text, name) {
  const compact = text.trim().replace(/\s+/g, "");
  if (!compact) return undefined;
  if (compact === "0") return 0;
  if (!/^(\d+(\.\d+)?(ms|d|h|m|s))+$/.test(compact)) throw new Error(`${name}: write a time such as 7d, 1h30m, 20s or 500ms, not “${text}”.`);
  const units = Object.fromEntries(SPANS);
  let total = 0;
  for (const [, amount, , unit] of compact.matchAll(/(\d+(\.\d+)?)(ms|d|h|m|s)/g)) total += Number(amount) * units[unit];
  return Math.round(total);
}

export function durationText(ms) {
  if (!ms) return "0";
  let left = ms;
  let text = "";
  for (const [unit, size] of SPANS) {
    const count = Math.floor(left / size);
    if (count) text += `${count}${unit}`;
    left -= count * size;
  }
  return text;
}

export function parseSize(text, name) {
  const found = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/i.exec(text.trim());
  if (!text.trim()) return undefined;
  const unit = found && SIZES[found[2].toLowerCase()];
  if (!unit) throw new Error(`${name}: write a size such as 500 kB, 10 MB or 2 GB, not “${text}”.`);
  return Math.round(Number(found[1]) * unit);
}

export function parseCount(text, name) {
  const compact = text.trim().replace(/[,_ ]/g, "");
  if (!compact) return undefined;
  if (!/^\d+$/.test(compact)) throw new Error(`${name}: write a whole number, not “${text}”.`);
  return Number(compact);
}

/** Parts between commas or on lines; empty ones are left out. */
export const parseList = (text) => text.split(/[,\n]/).map((each) => each.trim()).filter(Boolean);

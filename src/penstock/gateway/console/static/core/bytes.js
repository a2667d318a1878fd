// Messages of streams as text, JSON or hexadecimal digits. Pure.
//
// A message has `data` (text, or null for a tombstone) or `data_base64` (bytes that are no UTF-8); its tag likewise.

const ROW = 16;

export const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

/** The bytes of a message; null for a tombstone. */
export function dataOf(message) {
  if (message.data_base64 !== undefined) return bytesOf(message.data_base64);
  return message.data === null || message.data === undefined ? null : new TextEncoder().encode(message.data);
}

/** Its tag for people; bytes that are no text as hexadecimal digits. */
export const tagOf = (message) =>
  message.tag_base64 === undefined ? (message.tag ?? "") : `0x${[...bytesOf(message.tag_base64)].map(hex).join("")}`;

const hex = (byte) => byte.toString(16).padStart(2, "0");
const visible = (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·");

/** Rows of: place, digits, letters. */
export function hexDump(bytes) {
  const rows = [];
  for (let at = 0; at < bytes.length; at += ROW) {
    const part = [...bytes.subarray(at, at + ROW)];
    const digits = part.map(hex).join(" ").padEnd(ROW * 3 - 1);
    rows.push(`${at.toString(16).padStart(6, "0")}  ${digits}  ${part.map(visible).join("")}`);
  }
  return rows.join("\n");
}

// Tables. On a narrow screen each row becomes a card whose cells carry their column's name; roles are written out, since
// what is drawn as cards would be no table any more to those who cannot see it.
//
//     html`<${Table} label="Workers" rows=${workers} keyOf=${(row) => row.id}
//            columns=${[{ name: "Worker", show: (row) => row.id }, { name: "Running", show: …, isNumber: true }]} />`

import { html } from "../core/view.js";

export function Table({ label, columns, rows, keyOf, rowClass }) {
  return html`<div class="table-frame" tabindex="0" role="region" aria-label=${label}>
    <table role="table" aria-label=${label}>
      <thead role="rowgroup">
        <tr role="row">${columns.map((column) => html`<th role="columnheader" scope="col" class=${kindOf(column)}>${column.name}</th>`)}</tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(
          (row, at) => html`<tr role="row" key=${keyOf ? keyOf(row) : at} class=${rowClass?.(row)}>
            ${columns.map((column) => html`<td role="cell" class=${kindOf(column)} data-label=${column.name}>${column.show(row)}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

const kindOf = (column) => [column.isNumber ? "number" : "", column.isWide ? "wide" : "", column.className ?? ""].join(" ");

/** Onwards through pages that have cursors. `cursors`: those that led here; `names`: of the buttons. */
export function Pager({ page, cursors, onChange, names = ["← Newer", "Older →"] }) {
  if (!cursors.length && !page?.cursor) return null;
  return html`<div class="pager">
    <button disabled=${!cursors.length} onClick=${() => onChange(cursors.slice(0, -1))}>${names[0]}</button>
    <button disabled=${!page?.cursor} onClick=${() => onChange([...cursors, page.cursor])}>${names[1]}</button>
  </div>`;
}

/** Names and values, one below the other. `items`: [["Name", value], …]; those without a value are left out. */
export function Facts({ items }) {
  const shown = items.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">
    ${shown.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** A few numbers that matter, large. `items`: [{ name, value, href, kind }]. */
export function Tiles({ items }) {
  return html`<div class="tiles">
    ${items.map(({ name, value, href, kind = "", note }) => {
      const inside = html`<span class="tile-value">${value}</span><span class="tile-name">${name}</span>${note && html`<span class="tile-note">${note}</span>`}`;
      return href ? html`<a class="tile ${kind}" href=${href}>${inside}</a>` : html`<div class="tile ${kind}">${inside}</div>`;
    })}
  </div>`;
}

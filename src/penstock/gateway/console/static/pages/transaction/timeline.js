// The timeline of a transaction: a row for each step with bars over time, children below the step that started them.
// A row opens to what the step got, gave, logged and how often it was tried; which one is open is in the address.

import { html } from "../../core/view.js";
import { duration, moment, plural } from "../../core/format.js";
import { link, place } from "../../core/router.js";
import { Choice, Mark } from "../../parts/small.js";
import { rowsOf, scaleOf } from "./segments.js";
import { StepDetails } from "./step_details.js";
import { stateWord } from "./words.js";

const MOST_CHILDREN = 12;
const KINDS = [
  ["queued", "queued"], ["running", "running"], ["sleeping", "asleep"],
  ["waiting", "waits for a switch"], ["joining", "waits for children"], ["retry", "pause before a retry"],
];
const WORDS = { ...Object.fromEntries(KINDS), lost: "its worker fell silent" };
const LEFT = { sleep: "fell asleep", wait: "began to wait", join: "started children" };

export function Timeline({ tx, steps, children, now, query, change, replay }) {
  const isEven = query.scale !== "true";
  const rows = rowsOf(tx, steps, children, now);
  const end = tx.ended_ms ?? now;
  const to = Math.max(end, ...rows.flatMap((row) => row.bars.map((each) => each.to)));
  const scale = scaleOf(rows, tx.created_ms, to, isEven);
  const toggle = (key) => change({ open: query.open === key ? null : key });
  return html`<section class="timeline" aria-label="Timeline">
    <div class="timeline-head">
      <ul class="legend" aria-label="Colours">${KINDS.map(([kind, word]) => html`<li><i class="span ${kind}"></i>${word}</li>`)}</ul>
      <${Choice} label="Scale" value=${isEven ? "even" : "true"} of=${[["even", "Short ones larger"], ["true", "True to time"]]}
        onChange=${(value) => change({ scale: value === "true" ? "true" : null })} />
    </div>
    <div class="axis" aria-hidden="true"><span></span><span class="axis-times">
      <span>${moment(tx.created_ms)}</span>
      ${!isEven && html`<span>+ ${duration((to - tx.created_ms) / 2)}</span>`}
      <span>${tx.ended_ms ? moment(to) : "now"}</span></span></div>
    ${rows.map((row) => html`<${Row} key=${row.key} row=${row} tx=${tx} scale=${scale} now=${now}
      isOpen=${query.open === row.key} onToggle=${() => toggle(row.key)} replay=${replay} />`)}
  </section>`;
}

function Row({ row, tx, scale, now, isOpen, onToggle, replay }) {
  const name = row.kind === "undo" ? `↩ ${row.name}` : (row.name ?? `step ${row.step + 1}`);
  const shown = row.children.slice(0, MOST_CHILDREN);
  return html`<div class="lane ${row.bars.length ? "" : "unreached"}">
    <button class="lane-name" aria-expanded=${isOpen} onClick=${onToggle}
      title=${row.kind === "undo" ? `undoes step ${row.step + 1}` : `step ${row.step + 1}`}>
      <span class="lane-number">${row.step + 1}</span><span class="lane-text">${name}</span>
      <small class="quiet">${row.bars.findLast((each) => each.group)?.group ?? ""}</small>
      ${row.status ? html`<${Mark} word=${wordOf(row)} />` : html`<span class="quiet">${tx.state === "ended" ? "not reached" : "not yet"}</span>`}
    </button>
    <div class="track" role="img" aria-label=${spoken(name, row)} onClick=${onToggle}>
      ${row.bars.map((each, at) => html`<span key=${at} class="span ${each.kind} ${each.status} ${each.isOpen ? "open" : ""}"
        style=${stretch(scale, each.from, each.to)} title=${told(each)}></span>`)}
    </div>
  </div>
  ${shown.map((child, at) => html`<${ChildRow} key=${child.id} child=${child} name=${childName(row, child, at)} scale=${scale} now=${now} />`)}
  ${row.children.length > shown.length &&
  html`<p class="lane-more quiet">… and ${plural(row.children.length - shown.length, "child", "children")} more</p>`}
  ${isOpen && html`<${StepDetails} row=${row} tx=${tx} name=${name} replay=${replay} />`}`;
}

/** A branch by its name, an item by its number, anything else by its pipeline. */
function childName(row, child, at) {
  if (row.type === "map") return `${child.path ? "item" : child.pipeline} ${at + 1}`;
  return child.path ? child.path.split(".").at(-1) : child.pipeline;
}

function ChildRow({ child, name, scale, now }) {
  const to = child.ended_ms ?? now;
  const where = `${child.node_group}${child.worker ? `, ${child.worker}` : ""}`;
  return html`<div class="lane child">
    <span class="lane-name"><a class="lane-text" href=${link(place("/transactions/{}", child.id))}>${name}</a>
      <small class="quiet">${where}</small><${Mark} word=${stateWord(child)} /></span>
    <div class="track" role="img" aria-label="${name}: ${stateWord(child)}, ${duration(to - child.created_ms)}, ${where}">
      <span class="span running child ${child.status} ${child.ended_ms ? "" : "open"}" style=${stretch(scale, child.created_ms, to)}
        title="${name}: ${duration(to - child.created_ms)}, ${where}"></span>
    </div>
  </div>`;
}

const LEAVING = { sleep: "sleeping", wait: "waiting", join: "joining" };
const wordOf = (row) => LEAVING[row.status] ?? row.status;

const stretch = (scale, from, to) => ({ left: `${scale(from) * 100}%`, width: `${Math.max(0, scale(to) - scale(from)) * 100}%` });

function told({ kind, from, to, worker, group, attempt, status, note, isOpen }) {
  const where = [worker, group && `of ${group}`].filter(Boolean).join(" ");
  const parts = [
    `${WORDS[kind] ?? kind}${isOpen ? " since" : ":"} ${isOpen ? moment(from) : duration(to - from)}`,
    attempt > 1 && `attempt ${attempt}`, where, LEFT[status] ?? status, note,
  ];
  return parts.filter(Boolean).join(" · ");
}

function spoken(name, row) {
  if (!row.bars.length) return `${name}: not reached yet`;
  return `${name}: ${row.bars.map((each) => `${WORDS[each.kind] ?? each.kind} ${duration(each.to - each.from)}`).join(", then ")}`;
}

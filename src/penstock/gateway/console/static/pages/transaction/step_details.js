// One step of a transaction, opened: what it got and gave, each attempt with its worker, what it logged.

import { html } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { duration, moment } from "../../core/format.js";
import { useLoad } from "../../core/loading.js";
import { ActionButton } from "../../parts/dialogs.js";
import { Failure } from "../../parts/messages.js";
import { Json, Mark } from "../../parts/small.js";
import { Table } from "../../parts/table.js";

const LEFT = { sleep: "fell asleep", wait: "waits for a switch", join: "started children" };

export function StepDetails({ row, tx, name, replay }) {
  const isReached = row.step <= (tx.step ?? 0);
  const isMine = row.kind === "step";
  const data = useLoad(
    () => (isReached ? api.get(path("/v1/transactions/{}/steps/{}", tx.id, row.step)) : null),
    [tx.id, row.step, tx.step, tx.state, tx.run],
  );
  const canReplay = isMine && isReached && replay;
  return html`<div class="step-open" role="region" aria-label="Step ${name}">
    ${canReplay && html`<div class="buttons"><${ActionButton} label="Replay from here" className="small" ...${replay(row.step, name)} /></div>`}
    ${!isReached && html`<p class="quiet">It was not reached yet.</p>`}
    <${Failure} error=${data.error} />
    ${data.data && isMine && html`<div class="cards">
      <div><h3>Input</h3><${Json} label="Input of ${name}" value=${data.data.input} /></div>
      <div><h3>Output</h3>${data.data.is_done
        ? html`<${Json} label="Output of ${name}" value=${data.data.output} />`
        : html`<p class="quiet">Nothing yet.</p>`}</div>
    </div>`}
    <${Errors} entries=${row.entries} />
    ${row.entries.length > 0 && html`<h3>Attempts</h3>
      <${Attempts} name=${name} entries=${row.entries} />`}
    <${Logs} name=${name} entries=${row.entries} />
  </div>`;
}

function Errors({ entries }) {
  const last = entries.at(-1);
  const isBad = last?.note && !["success", "sleep", "wait", "join"].includes(last.status);
  return isBad ? html`<h3>Error</h3><p class="failure">${last.note}</p>` : null;
}

function Attempts({ name, entries }) {
  return html`<${Table} label="Attempts of ${name}" rows=${entries} columns=${[
    { name: "Attempt", isNumber: true, show: (each) => each.attempt },
    { name: "Began", show: (each) => moment(each.started_ms) },
    { name: "Took", isNumber: true, show: (each) => duration(each.at_ms - each.started_ms) },
    { name: "Came of it", show: (each) =>
        LEFT[each.status] ? html`<span class="quiet">${LEFT[each.status]}</span>` : html`<${Mark} word=${each.status} />` },
    { name: "Node group", show: (each) => each.group },
    { name: "Worker", show: (each) => each.worker },
    { name: "Note", isWide: true, show: (each) => each.note ?? "" },
  ]} />`;
}

function Logs({ name, entries }) {
  const lines = entries.flatMap((each) => (each.logs ?? []).map(([at, level, text]) => ({ at, level, text, attempt: each.attempt })));
  if (!lines.length) return null;
  return html`<h3>Logs</h3><ol class="logs" aria-label="Logs of ${name}">
    ${lines.map((line) => html`<li class=${line.level}><time>${moment(line.at)}</time> <span class="level">${line.level}</span> ${line.text}</li>`)}
  </ol>`;
}

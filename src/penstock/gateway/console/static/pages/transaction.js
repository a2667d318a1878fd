// One transaction: where it is, its timeline, its data, and everything that people can do to it.
//
// It is followed by events while it goes on; each event makes the page look again, with the trail. Which buttons there
// are depends on its state: transaction/actions.js.

import { html, useEffect, useRef, useState } from "../core/view.js";
import { api, path } from "../core/api.js";
import { ago, moment, number } from "../core/format.js";
import { useEvents, useLoad } from "../core/loading.js";
import { link, place, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { Head } from "../parts/frame.js";
import { Empty, Loaded } from "../parts/messages.js";
import { Copied, Json, Mark, Tabs } from "../parts/small.js";
import { Facts, Table } from "../parts/table.js";
import { Buttons, DeleteSwitch, replayOf } from "./transaction/actions.js";
import { stepsAt } from "./transaction/definition.js";
import { Timeline } from "./transaction/timeline.js";
import { Trail } from "./transaction/trail.js";
import { hasEnded, inBrief, stateWord, whereNow } from "./transaction/words.js";

const REFRESH_MS = 4_000;
const QUIET_MS = 15_000;
const LEAST_PAUSE_MS = 250;

export function Transaction({ route }) {
  const id = route.params.id;
  const [query, change] = useQuery(route);
  const [isOver, setOver] = useState(false);
  const found = useLoad(() => look(id), [id], { everyMs: isOver ? QUIET_MS : REFRESH_MS });
  const tx = found.data?.tx;
  useEffect(() => setOver(Boolean(tx && hasEnded(tx) && tx.webhook_status !== "pending")), [tx]);

  const again = useCalmly(found.reload);
  const line = useEvents(tx && !hasEnded(tx) ? path("/v1/transactions/{}/events", id) : null, { state: again, progress: again }, [id]);
  useEffect(() => {
    if (line.line === "ended") found.reload();
  }, [line.line]);

  if (found.error?.status === 404 && !tx) return html`<${Missing} id=${id} />`;
  return html`<${Loaded} of=${found}>${(data) => html`
    <${Shown} ...${data} query=${query} change=${change} route=${route} line=${line.line} reload=${found.reload} />
  `}<//>`;
}

/** The transaction with its trail, its children, and the steps of its version if they can be read. */
async function look(id) {
  const tx = await api.get(path("/v1/transactions/{}", id), { trail: "true" });
  const [children, steps] = await Promise.all([
    api.get(path("/v1/transactions/{}/children", id)).then((page) => page.children, () => []),
    tx.version ? stepsAt(tx) : null,
  ]);
  return { tx, children, steps };
}

/** Calls at once, then not again for a moment: many events in a row are one look. */
function useCalmly(call) {
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return () => {
    if (timer.current) return;
    timer.current = setTimeout(() => {
      timer.current = 0;
      call();
    }, LEAST_PAUSE_MS);
  };
}

function useNow(isOn) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!isOn) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [isOn]);
  return now;
}

function Shown({ tx, children, steps, query, change, route, line, reload }) {
  const { can } = useSession();
  const now = Math.max(useNow(!hasEnded(tx)), tx.created_ms);
  const tab = query.tab ?? "timeline";
  const isOperator = can("operate");
  const tabs = [
    ["timeline", "Timeline"], ["data", "Data"],
    ["children", `Children (${children.length})`], ["trail", `Trail (${tx.trail?.length ?? 0})`],
  ];
  return html`
    <${Head} title=${tx.external_id ?? tx.id} crumbs=${[["Transactions", "/transactions"]]}>
      ${isOperator && html`<${Buttons} tx=${tx} after=${reload} />`}
    <//>
    <p class="where" aria-live="polite"><${Mark} word=${stateWord(tx)} /> ${whereNow(tx, steps?.[tx.step ?? 0]?.id, children)}
      ${!hasEnded(tx) && html` <small class="quiet" title="The line to the gateway">${line === "live" ? "live" : "connecting …"}</small>`}</p>
    <p class="tx-line"><${Copied} text=${tx.id} /></p>
    ${tx.note && html`<p class=${hasEnded(tx) && tx.status !== "success" ? "failure" : "quiet"}>${tx.note}</p>`}
    <${Facts} items=${factsOf(tx)} />
    <${Tabs} label="Parts" of=${tabs} value=${tab} placeOf=${(each) => link(route.place, { ...query, tab: each === "timeline" ? null : each })} />
    ${tab === "data"
      ? html`<${Data} tx=${tx} />`
      : tab === "children"
        ? html`<${Children} items=${children} />`
        : tab === "trail"
          ? html`<${Trail} entries=${tx.trail ?? []} />`
          : html`<${Timeline} tx=${tx} steps=${steps} children=${children} now=${now} query=${query} change=${change}
              replay=${isOperator ? replayOf(tx, reload) : null} />
            <${Switches} tx=${tx} after=${isOperator && !hasEnded(tx) ? reload : null} />
            <${Progress} tx=${tx} /><${WebhookAttempts} tx=${tx} />`}
  `;
}

function factsOf(tx) {
  return [
    ["Pipeline", html`<a href=${link(place("/pipelines/{}", tx.pipeline), { version: tx.version })}>${tx.pipeline}</a>
      ${" "}<small class="quiet">${tx.version?.slice(0, 8)}${tx.path ? `, ${tx.path}` : ""}</small>`],
    ["Owner", html`<a href=${link("/transactions", { tab: "all", owner: tx.owner })}>${tx.owner}</a>`],
    ["Part of", tx.parent && html`<a href=${link(place("/transactions/{}", tx.parent))}>${tx.parent}</a>`],
    ["Node group", html`<a href=${link("/transactions", { node_group: tx.node_group })}>${tx.node_group}</a>`],
    ["Worker", tx.worker],
    ["Priority", number(tx.priority ?? 5)],
    ["Started", html`<time title=${ago(tx.created_ms)}>${moment(tx.created_ms)}</time>`],
    ["Ended", tx.ended_ms && moment(tx.ended_ms)],
    ["Deadline", tx.deadline_ms && moment(tx.deadline_ms)],
    ["Told to whoever asked", tx.notified_ms && moment(tx.notified_ms)],
    ["Replayed", tx.run ? `${number(tx.run)} times` : null],
    ["Kept in", tx.is_archived ? "the archive" : null],
  ];
}

function Data({ tx }) {
  return html`<div class="cards">
    ${[["Input", tx.input], ["Output", tx.output], ["Metadata", tx.metadata], ["Progress", tx.progress]].map(
      ([name, value]) => html`<div><h2>${name}</h2><${Json} label=${name} value=${value} /></div>`,
    )}
  </div>`;
}

function Children({ items }) {
  if (!items.length) {
    return html`<${Empty} title="It has no children">
      Steps that run other pipelines, branches or items start some. Those that were archived are not listed.<//>`;
  }
  return html`<${Table} label="Children" rows=${items} keyOf=${(row) => row.id} columns=${[
    { name: "Transaction", isWide: true, show: (row) =>
        html`<a class="tx-id" href=${link(place("/transactions/{}", row.id))}>${row.id.slice(row.id.indexOf("."))}</a>` },
    { name: "Runs", show: (row) => (row.path ? html`<span>${row.pipeline} <small class="quiet">${row.path}</small></span>` : row.pipeline) },
    { name: "State", show: (row) => html`<${Mark} word=${stateWord(row)} />` },
    { name: "Where", isWide: true, show: (row) => html`<span class="quiet">${inBrief(row)}</span>` },
    { name: "Node group", show: (row) => row.node_group },
    { name: "Worker", show: (row) => row.worker ?? "" },
  ]} />`;
}

/** `after`: called when one was deleted; without it none can be. */
function Switches({ tx, after }) {
  const rows = Object.entries(tx.switches ?? {});
  if (!rows.length) return null;
  return html`<h2>Switches</h2><${Table} label="Switches" rows=${rows} keyOf=${([name]) => name} columns=${[
    { name: "Switch", show: ([name]) => html`<code>${name}</code>` },
    { name: "Value", isWide: true, show: ([, value]) => value },
    ...(after ? [{ name: "", show: ([name]) => html`<${DeleteSwitch} tx=${tx} name=${name} after=${after} />` }] : []),
  ]} />`;
}

function Progress({ tx }) {
  if (tx.progress === undefined || tx.progress === null) return null;
  return html`<h2>Progress</h2><${Json} label="Progress" value=${tx.progress} />`;
}

function WebhookAttempts({ tx }) {
  if (!tx.webhook) return null;
  const attempts = (tx.trail ?? []).filter((entry) => entry.kind === "webhook");
  return html`<h2>Webhook</h2>
    <${Facts} items=${[
      ["Address", html`<code>${tx.webhook}</code>`],
      ["State", html`<${Mark} word=${tx.webhook_status ?? "before its end"} />`],
      ["What it said", tx.webhook_comment],
    ]} />
    ${attempts.length > 0 && html`<${Table} label="Webhook attempts" rows=${attempts} columns=${[
      { name: "At", show: (each) => moment(each.at_ms) },
      { name: "Came of it", isWide: true, show: (each) => each.note },
    ]} />`}`;
}

function Missing({ id }) {
  return html`<${Head} title=${id} crumbs=${[["Transactions", "/transactions"]]} />
    <${Empty} title="There is no such transaction">
      It may have left the store for an archive that this gateway does not know, or belong to another owner.
      <p><${Copied} text=${`penstock tx status ${id} --archive ./archive`} /></p><//>`;
}

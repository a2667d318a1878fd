// New messages of a stream as they come, newest first. The line can be paused; then nothing is sent, and it goes on where it
// was. So many rows are kept, older ones leave.

import { html, useState } from "../../core/view.js";
import { path } from "../../core/api.js";
import { plural } from "../../core/format.js";
import { useEvents } from "../../core/loading.js";
import { VIEWS, messageColumns } from "../../parts/entry.js";
import { Empty } from "../../parts/messages.js";
import { Choice, Mark, Search } from "../../parts/small.js";
import { Table } from "../../parts/table.js";

const MOST_ROWS = 200;
const NOTHING_SEEN = { rows: [], count: 0 };

/** What came while somebody pressed Pause comes again afterwards. */
const isNew = (message, rows) => !rows.length || message.offset > rows[0].offset;

export function Following({ name, query, change }) {
  const [{ rows, count }, setSeen] = useState(NOTHING_SEEN);
  const [next, setNext] = useState("now");
  const [isPaused, setPaused] = useState(false);
  const view = VIEWS.some(([each]) => each === query.as) ? query.as : "json";
  const add = (message) => setSeen((seen) => (isNew(message, seen.rows) ? { rows: [message, ...seen.rows].slice(0, MOST_ROWS), count: seen.count + 1 } : seen));
  const gap = ({ from, first }) => add({ offset: from, time: 0, data: `offsets ${from} to ${first - 1} were evicted before they could be shown` });
  const { line, end } = useEvents(
    isPaused ? null : path("/v1/streams/{}", name), { message: add, gap }, [query.tag, next],
    { live: "sse", offset: next, tag: query.tag },
  );
  const pause = () => {
    if (rows.length) setNext(rows[0].offset + 1);
    setPaused(true);
  };
  const clear = () => setSeen(NOTHING_SEEN);
  const restrict = (tag) => {
    clear();
    setNext("now");
    change({ tag });
  };
  return html`
    <div class="filters">
      ${isPaused
        ? html`<button class="main" onClick=${() => setPaused(false)}>Go on</button>`
        : html`<button onClick=${pause}>Pause</button>`}
      <button disabled=${!rows.length} onClick=${clear}>Clear</button>
      <${Search} label="Tag" placeholder="Only this tag" value=${query.tag} onChange=${restrict} />
      <${Choice} label="Shown as" of=${VIEWS} value=${view} onChange=${(as) => change({ as: as === "json" ? null : as })} />
      <span class="fill"></span>
      <span class="quiet" role="status">${plural(count, "message")}${count > MOST_ROWS ? `, the newest ${MOST_ROWS} shown` : ""}</span>
      <${Mark} word=${isPaused ? "paused" : line} />
    </div>
    ${end && html`<p class="failure" role="alert">${end.detail} <button class="small" onClick=${() => setNext("now")}>Follow from now on</button></p>`}
    ${rows.length
      ? html`<${Table} label="Live messages" columns=${messageColumns(view)} rows=${rows} keyOf=${(each) => each.offset} />`
      : html`<${Empty} title=${isPaused ? "Paused" : "Waiting for messages"}>What is written from now on appears here.<//>`}
  `;
}

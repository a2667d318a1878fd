// Messages of a stream, page by page: from an offset, from a moment, of a tag; and a field to write a test message.
// Where the reader is, is in the address: `offset` begins the page (none: the newest ones), `tag` filters, `as` is the view.

import { html, useState } from "../../core/view.js";
import { plural } from "../../core/format.js";
import { useLoad } from "../../core/loading.js";
import { useSession } from "../../core/session.js";
import { VIEWS, messageColumns } from "../../parts/entry.js";
import { Empty, Loaded, tell } from "../../parts/messages.js";
import { Choice, Search } from "../../parts/small.js";
import { Table } from "../../parts/table.js";
import { firstAt, pageBefore, pageFrom } from "./reading.js";
import { Writing } from "./writing.js";

const PAGE = 25;

export function Messages({ name, info, query, change, onWritten }) {
  const { can } = useSession();
  const begin = query.offset === undefined ? null : Number(query.offset);
  const view = VIEWS.some(([each]) => each === query.as) ? query.as : "json";
  const page = useLoad(
    () => (begin === null ? pageBefore(name, Infinity, PAGE, query.tag) : pageFrom(name, begin, PAGE, query.tag)),
    [name, begin, query.tag],
    { isKept: true },
  );
  const reload = () => Promise.all([page.reload(), onWritten()]);
  const newer = page.data && info.last > page.data.last && begin === null ? info.last - page.data.last : 0;
  return html`
    <div class="filters">
      <${Steps} name=${name} info=${info} page=${page.data} tag=${query.tag} change=${change} />
      <${Jump} name=${name} change=${change} />
      <${Search} label="Tag" placeholder="Only this tag" value=${query.tag} onChange=${(tag) => change({ tag })} />
      <${Choice} label="Shown as" of=${VIEWS} value=${view} onChange=${(as) => change({ as: as === "json" ? null : as })} />
    </div>
    ${newer > 0 && html`<p class="newer"><button class="small" onClick=${page.reload}>Show ${plural(newer, "newer message")}</button></p>`}
    <${Loaded} of=${page}>
      ${(data) => data.messages.length
        ? html`<${Table} label="Messages" columns=${messageColumns(view)} rows=${data.messages} keyOf=${(each) => each.offset} />`
        : html`<${Empty} title=${query.tag ? "No message of this tag here" : "No messages here"}>
            ${query.tag ? "Go back or forth, or look for another tag." : "The stream is empty from this offset on."}
          <//>`}
    <//>
    ${can("operate") && html`<${Writing} name=${name} onWritten=${reload} />`}
  `;
}

function Steps({ name, info, page, tag, change }) {
  const at = page?.messages[0]?.offset ?? page?.from ?? info.first;
  const older = async () => {
    const found = await pageBefore(name, at, PAGE, tag);
    change({ offset: found.messages[0]?.offset ?? info.first });
  };
  const hasOlder = page && at > page.first;
  const hasNewer = page && page.next <= page.last;
  return html`<div class="buttons" role="group" aria-label="Go through messages">
    <button disabled=${!hasOlder} onClick=${() => change({ offset: info.first })}>⇤ First</button>
    <button disabled=${!hasOlder} onClick=${() => older().catch((error) => tell(error.message, "bad"))}>← Older</button>
    <button disabled=${!hasNewer} onClick=${() => change({ offset: page.next })}>Newer →</button>
    <button disabled=${!hasNewer} onClick=${() => change({ offset: null })}>Last ⇥</button>
  </div>`;
}

/** To an offset, or to what was written at a moment or later. */
function Jump({ name, change }) {
  const [offset, setOffset] = useState("");
  const [time, setTime] = useState("");
  const toOffset = (event) => {
    event.preventDefault();
    if (offset !== "") change({ offset: Math.max(0, Math.floor(Number(offset))) });
  };
  const toTime = async (event) => {
    event.preventDefault();
    if (!time) return;
    try {
      const found = await firstAt(name, new Date(time).getTime());
      if (found === null) tell("Nothing was written then or later: these are the newest messages.");
      change({ offset: found });
    } catch (error) {
      tell(error.message, "bad");
    }
  };
  return html`
    <form class="jump" onSubmit=${toOffset}>
      <input type="number" min="0" aria-label="Offset" placeholder="Offset" value=${offset} onInput=${(event) => setOffset(event.target.value)} />
      <button>Go to offset</button>
    </form>
    <form class="jump" onSubmit=${toTime}>
      <input type="datetime-local" step="1" aria-label="Time" value=${time} onInput=${(event) => setTime(event.target.value)} />
      <button>Go to time</button>
    </form>
  `;
}

// A pipeline as a drawing: boxes and arrows in our own SVG, as wide as the room there is. Where everything goes is
// decided in layout.js. Colours come from the stylesheet, so both themes have their own.

import { html, useEffect, useRef, useState } from "../../core/view.js";
import { link, place } from "../../core/router.js";
import { layout } from "./layout.js";

const MARGIN = 16;
const MOST = 1000;
const PER_CHARACTER = 6.7;

export function Drawing({ definition }) {
  const frame = useRef(null);
  const [room, setRoom] = useState(0);
  useEffect(() => {
    const element = frame.current;
    if (!element) return undefined; // gone before it was drawn
    const measure = () => setRoom(Math.min(MOST, element.clientWidth - 2 * MARGIN));
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return html`<div class="drawing" ref=${frame}>${room > 0 && html`<${Svg} definition=${definition} room=${room} />`}</div>`;
}

function Svg({ definition, room }) {
  const { width, height, boxes, edges, labels, frames, dots } = layout(definition, room);
  const names = boxes.map(({ lines }) => lines[1].text).join(", ");
  return html`<svg width=${width + 2} height=${height + 2} viewBox="-1 -1 ${width + 2} ${height + 2}" role="group"
      aria-label="Steps of ${definition.name ?? "the draft"}: ${names}">
    ${frames.map((each) => html`<rect class="frame" x=${each.x} y=${each.y} width=${each.width} height=${each.height} rx="8" />`)}
    ${edges.map((each) => html`<path class="edge" d=${each.path} />${each.tip && html`<path class="tip" d=${tipAt(...each.tip)} />`}`)}
    ${dots.map((each) => html`<circle class="end" cx=${each.x} cy=${each.y} r="6" />`)}
    ${labels.map((each) => html`<text class="label" x=${each.x} y=${each.y}>${fitted(each.text, each.room)}</text>`)}
    ${boxes.map((each) => html`<${Box} ...${each} />`)}
  </svg>`;
}

const tipAt = (x, y) => `M${x} ${y}l-4 -7h8z`;

function Box({ x, y, width, height, lines, step }) {
  return html`<g class=${step.type ?? "function"} transform="translate(${x} ${y})">
    <title>${lines.map((line) => line.text).join("\n")}${step.note ? `\n${step.note}` : ""}</title>
    <rect class="box" width=${width} height=${height} rx="6" />
    <rect class="strip" width="4" height=${height} rx="2" />
    ${lines.map((line, at) => {
      const text = html`<text class=${line.kind} x="14" y=${8 + 12 + at * 16}>${fitted(line.text, width - 22)}</text>`;
      return line.pipeline ? html`<a href=${link(place("/pipelines/{}", line.pipeline))}>${text}</a>` : text;
    })}
  </g>`;
}

function fitted(text, room) {
  const most = Math.max(3, Math.floor(room / PER_CHARACTER));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// Where the boxes and arrows of a pipeline go. Pure: measures in pixels, from a definition and the room there is.
//
//     layout(definition, 340)  ->  { width, height, boxes: [{ x, y, width, height, step, lines, … }], edges, labels, frames }
//
// Steps lie below one another. Branches lie side by side where there is room, else below one another between two
// rails. A block knows its size before it is placed; `put(x, y)` places it and what is in it.

import { linesOf, routesOf } from "./step_lines.js";

const BOX = 210;
const LEAST_BOX = 150;
const LINE = 16;
const PAD = 8;
const ARROW = 24;
const GAP = 18;
const RAIL = 18;
const LABEL = 18;
const FRAME = 10;
const DOT = 7;

export function layout(definition, room) {
  const drawn = { boxes: [], edges: [], labels: [], frames: [] };
  const body = sequence(definition.steps ?? [], Math.max(LEAST_BOX, room), definition, drawn);
  const middle = body.width / 2;
  const top = 2 * DOT;
  body.put(0, top + ARROW);
  drawn.edges.push(down(middle, top, top + ARROW));
  const bottom = top + ARROW + body.height;
  if (!body.ends) drawn.edges.push(down(middle, bottom, bottom + ARROW));
  const dots = [{ x: middle, y: DOT }, ...(body.ends ? [] : [{ x: middle, y: bottom + ARROW + DOT }])];
  return { ...drawn, dots, width: body.width, height: bottom + (body.ends ? 0 : ARROW + 2 * DOT) };
}

const down = (x, from, to) => ({ path: `M${x} ${from}V${to - 4}`, tip: [x, to] });

/** Steps below one another. `ends`: nothing comes behind the last. */
function sequence(steps, room, definition, drawn) {
  const blocks = steps.map((step) => blockOf(step, room, definition, drawn));
  const width = Math.max(LEAST_BOX, ...blocks.map((each) => each.width));
  const height = blocks.reduce((sum, each) => sum + each.height, 0) + ARROW * Math.max(0, blocks.length - 1);
  return {
    width, height, ends: blocks.at(-1)?.ends ?? false,
    put(x, y) {
      let at = y;
      blocks.forEach((block, index) => {
        block.put(x + (width - block.width) / 2, at);
        at += block.height;
        if (index < blocks.length - 1) {
          if (!block.ends) drawn.edges.push(down(x + width / 2, at, at + ARROW));
          at += ARROW;
        }
      });
    },
  };
}

function blockOf(given, room, definition, drawn) {
  const step = typeof given === "string" ? { type: "function", name: given, id: given } : given;
  const head = box(step, room, definition, drawn);
  const inside = (steps, inner) => sequence(steps, inner, definition, drawn);
  if (step.type === "parallel") {
    return fork(head, Object.entries(step.branches ?? {}).map(([label, steps]) => ({ label, steps })), room, inside, drawn);
  }
  if (step.type === "router") return fork(head, routesOf(step), room, inside, drawn);
  if (step.type === "map") {
    const steps = step.steps ?? [{ type: "child", pipeline: step.pipeline, id: step.pipeline }];
    return framed(head, inside(steps, room - 2 * FRAME), drawn);
  }
  return head;
}

function box(step, room, definition, drawn) {
  const width = Math.min(BOX, room);
  const lines = linesOf(step, definition);
  const height = 2 * PAD + LINE * lines.length;
  return {
    width, height, ends: step.type === "reply",
    put: (x, y) => drawn.boxes.push({ x, y, width, height, lines, step }),
  };
}

/** The steps of a map, in a frame below its box. */
function framed(head, body, drawn) {
  const width = Math.max(head.width, body.width + 2 * FRAME);
  const height = head.height + ARROW + body.height + FRAME;
  return {
    width, height, ends: false,
    put(x, y) {
      const top = y + head.height;
      head.put(x + (width - head.width) / 2, y);
      drawn.edges.push(down(x + width / 2, top, top + ARROW));
      const inner = (width - body.width) / 2;
      drawn.frames.push({ x: x + inner - FRAME, y: top + ARROW / 2, width: body.width + 2 * FRAME, height: ARROW / 2 + body.height + FRAME });
      body.put(x + inner, top + ARROW);
    },
  };
}

function fork(head, branches, room, inside, drawn) {
  const bodies = branches.map(({ label, steps }) => ({ label, body: inside(steps, room) }));
  const beside = bodies.reduce((sum, { body }) => sum + body.width, 0) + GAP * (bodies.length - 1);
  if (beside <= room) return besides(head, bodies, beside, drawn);
  const narrow = room - 2 * RAIL;
  return stacked(head, branches.map(({ label, steps }) => ({ label, body: inside(steps, narrow) })), drawn);
}

function besides(head, bodies, beside, drawn) {
  const width = Math.max(head.width, beside);
  const tallest = Math.max(0, ...bodies.map(({ body }) => body.height));
  const height = head.height + ARROW / 2 + LABEL + ARROW + tallest + ARROW / 2;
  return {
    width, height, ends: false,
    put(x, y) {
      const middle = x + width / 2;
      head.put(middle - head.width / 2, y);
      const split = y + head.height + ARROW / 2;
      const top = split + LABEL + ARROW;
      const bottom = y + height;
      let left = x + (width - beside) / 2;
      for (const { label, body } of bodies) {
        const at = left + body.width / 2;
        drawn.edges.push({ path: `M${middle} ${y + head.height}V${split}H${at}V${top - 4}`, tip: [at, top] });
        drawn.labels.push({ x: at + 5, y: split + LABEL, text: label, room: body.width / 2 });
        body.put(left, top);
        if (!body.ends) drawn.edges.push({ path: `M${at} ${top + body.height}V${bottom}H${middle}` });
        left += body.width + GAP;
      }
    },
  };
}

/** Down the left rail, into each branch from above, out of it to the right rail. */
function stacked(head, bodies, drawn) {
  const widest = Math.max(0, ...bodies.map(({ body }) => body.width));
  const width = Math.max(head.width, widest + 2 * RAIL);
  const height = head.height + ARROW / 2 + bodies.reduce((sum, { body }) => sum + LABEL + ARROW / 2 + body.height + ARROW / 2, 0) + ARROW / 2;
  return {
    width, height, ends: false,
    put(x, y) {
      const middle = x + width / 2;
      const [left, right] = [x + RAIL / 3, x + width - RAIL / 3];
      head.put(middle - head.width / 2, y);
      const split = y + head.height + ARROW / 2;
      const bottom = y + height;
      let top = split;
      for (const { label, body } of bodies) {
        const enter = top + LABEL;
        const first = enter + ARROW / 2;
        drawn.labels.push({ x: left + 8, y: enter - 5, text: label, room: width - 2 * RAIL });
        drawn.edges.push({ path: `M${middle} ${y + head.height}V${split}H${left}V${enter}H${middle}V${first - 4}`, tip: [middle, first] });
        body.put(middle - body.width / 2, first);
        top = first + body.height + ARROW / 2;
        if (!body.ends) drawn.edges.push({ path: `M${middle} ${first + body.height}V${top}H${right}V${bottom}H${middle}` });
      }
    },
  };
}

// Lines over time, drawn by uPlot. New data moves the drawing; nothing is built anew.
//
//     html`<${Chart} label="Transactions a second" times=${seconds} series=${[{ name: "ended", values, colour: "good" }]} />`
//
// `times` are seconds since 1970, ascending; the drawing shows at least `leastS` of them. `isWhole`: values are counts.
// Colours are names of the stylesheet (--good, --accent, …), read again when the theme changes. The legend tells the newest
// values until somebody points at others. What the drawing shows is also there as a sentence, for those who cannot see it.

import { html, useEffect, useRef } from "../core/view.js";
import { NOTHING, compact } from "../core/format.js";
import uPlot from "../vendor/uplot.js";

const HEIGHT = 180;
const LEAST_S = 60;
/** Steps between lines where nothing lies between two whole numbers. */
const WHOLE = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();

export function Chart({ label, times, series, format = compact, height = HEIGHT, leastS = LEAST_S, isWhole = false }) {
  const element = useRef(null);
  const plot = useRef(null);
  const latest = useRef(null);
  latest.current = dataOf(times, series);
  const shape = series.map((each) => each.name + each.colour).join();

  useEffect(() => {
    const home = element.current;
    const build = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(home, series, { format, height, leastS, isWhole }), latest.current, home);
    };
    build();
    const watch = new ResizeObserver(() => plot.current?.setSize({ width: home.clientWidth, height }));
    watch.observe(home);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("themechange", build);
    scheme.addEventListener("change", build);
    return () => {
      watch.disconnect();
      removeEventListener("themechange", build);
      scheme.removeEventListener("change", build);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(latest.current);
    plot.current?.setLegend({ idx: plot.current.cursor.idx ?? null });
  }, [times, series]);

  return html`<figure class="chart" role="img" aria-label=${spoken(label, series, format)}>
    <figcaption>${label}</figcaption>
    <div ref=${element} style=${{ minHeight: `${height}px` }}></div>
  </figure>`;
}

const dataOf = (times, series) => [times, ...series.map((each) => each.values)];

function options(element, series, { format, height, leastS, isWhole }) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width: element.clientWidth || 300,
    height,
    legend: { live: true },
    cursor: { y: false, drag: { x: false } },
    scales: {
      x: { time: true, range: (_, low, high) => [Math.min(low, high - leastS), high] },
      y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 0) * 1.1)] },
    },
    axes: [
      { ...axis, size: 26, values: (_, ticks, __, ___, stepS) => ticks.map((each) => clock(each, stepS)) },
      { ...axis, size: 52, values: (_, ticks) => ticks.map((each) => format(each)), ...(isWhole ? { incrs: WHOLE } : {}) },
    ],
    series: [
      { label: "at", value: (drawn, at) => clock(at ?? newest(drawn.data[0])) },
      ...series.map((each) => ({
        label: each.name, stroke: colour(each.colour ?? "accent"), width: 2, points: { show: false },
        fill: each.isFilled ? `${colour(each.colour ?? "accent")}22` : undefined, spanGaps: true,
        value: (drawn, value, place, at) => format(at === null ? newest(drawn.data[place]) : value),
      })),
    ],
  };
}

/** The last value that is one. */
const newest = (values) => values.findLast((value) => value !== null && value !== undefined) ?? null;

/** Local time of seconds since 1970; without seconds where steps are minutes. */
function clock(seconds, stepS = 1) {
  if (seconds === null) return NOTHING;
  return new Date(seconds * 1000).toLocaleTimeString("en-GB").slice(0, stepS < 60 ? 8 : 5);
}

function spoken(label, series, format) {
  const last = series.map((each) => `${each.name} ${format(newest(each.values))}`);
  return `${label}: ${last.join(", ")}`;
}

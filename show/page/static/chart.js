/* Charts: lines over a grid; and the error against alpha with its worst case, both axes logarithmic. */

import { drawn } from "./dom.js";
import { formatted, superscript } from "./numbers.js";

const BOX = { width: 780, height: 346, left: 74, right: 640, top: 14, bottom: 290 };

/** From values of a range to places between two ends. */
export function scale([low, high], from, to) { return (value) => from + (value - low) / (high - low || 1) * (to - from); }

/** A chart in a box, with ticks [place, words] along both axes, and whatever else is drawn in it. */
export function drawFrame(host, { width, height, left, right, top, bottom }, xTicks, yTicks, label, ...parts) {
  const text = (words, attributes) => drawn("text", attributes, words);
  const columns = xTicks.flatMap(([x, words]) => [drawn("line", { class: "grid", x1: x, x2: x, y1: top, y2: bottom }),
    text(words, { x, y: bottom + 22, "text-anchor": "middle" })]);
  const rows = yTicks.flatMap(([y, words]) => [drawn("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
    text(words, { x: left - 8, y: y + 4, "text-anchor": "end" })]);
  const axis = drawn("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
  const about = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
  host.replaceChildren(drawn("svg", about, ...columns, ...rows, axis, ...parts));
}

/** A line through places, with words behind its end. */
export function line(places, name, words = "") {
  const known = places.filter(([, y]) => y !== null);
  if (!known.length) return [];
  const [x, y] = known.at(-1);
  return [drawn("polyline", { class: name, points: known.map((place) => place.map((n) => n.toFixed(1)).join()).join(" ") }),
    drawn("text", { class: name, x: x + 10, y: y + 4 }, words)];
}

/** A curve of [alpha, measured, worst case], the present alpha, and what is measured and proved there. */
export function drawChart(host, curve, alpha, here) {
  const known = curve.flatMap(([, measured, bound]) => [measured, bound]).concat(here.difference, here.bound).filter((value) => value > 0);
  if (!known.length) return host.replaceChildren();
  const { left, right, top, bottom } = BOX, first = Math.log2(curve[0][0]), last = Math.log2(curve.at(-1)[0]);
  const low = Math.floor(Math.log10(Math.min(...known))), high = Math.max(Math.ceil(Math.log10(Math.max(...known))), low + 1);
  const [across, up] = [scale([first, last], left, right), scale([low, high], bottom, top)];
  const x = (value) => across(Math.log2(value)), y = (value) => up(Math.log10(Math.max(value, 10 ** low)));
  const every = Math.ceil((high - low) / 7), count = Math.floor((high - low) / every) + 1;
  const powers = Array.from({ length: count }, (_, at) => low + at * every);
  const yTicks = powers.map((power) => [up(power), `10${superscript(power)}`]);
  const xTicks = [[1 / 32, "1/32"], [1, "1"], [8, "8"], [128, "128"], [1024, "1024"]].map(([value, words]) => [x(value), words]);
  const places = curve.filter(([, measured]) => measured > 0), at = x(Math.min(Math.max(alpha, curve[0][0]), curve.at(-1)[0]));
  const dots = places.map(([value, measured, bound]) => drawn("circle", { class: "dot", cx: x(value), cy: y(measured), r: 2.5 },
    drawn("title", {}, `α = ${formatted(value)}: measured ${formatted(measured)}, worst case ${formatted(bound)}`)));
  const circle = here.difference === null ? [] : [drawn("circle", { class: "here", cx: at, cy: y(here.difference), r: 5 })];
  const names = [drawn("text", { class: "name", x: (left + right) / 2, y: bottom + 46, "text-anchor": "middle" }, "sharpness α"),
    drawn("text", { class: "name up", "text-anchor": "middle", transform: `translate(16 ${(top + bottom) / 2}) rotate(-90)` },
      "difference of an output")];
  drawFrame(host, BOX, xTicks, yTicks, "Difference between attention and convolution against alpha, with its worst case",
    ...line(curve.map(([value, , bound]) => [x(value), bound && y(bound)]), "bound", "worst case"),
    ...line(places.map(([value, measured]) => [x(value), y(measured)]), "measured", "measured"),
    ...dots, drawn("line", { class: "now", x1: at, x2: at, y1: top, y2: bottom }), ...circle, ...names);
}

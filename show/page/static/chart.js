/* The error against alpha with its bound, both axes logarithmic. */

import { formatted, superscript } from "./numbers.js";
import { element } from "./panels.js";

const CHART = { width: 780, height: 346, left: 74, right: 640, top: 14, bottom: 290 };

export function drawChart(host, curve, alpha, here) {
  const known = curve.flatMap(([, difference, bound]) => [difference, bound]).concat(here.difference, here.bound)
    .filter((value) => value > 0);
  if (!known.length) return host.replaceChildren();
  const low = Math.floor(Math.log10(Math.min(...known))), high = Math.max(Math.ceil(Math.log10(Math.max(...known))), low + 1);
  const first = Math.log2(curve[0][0]), last = Math.log2(curve.at(-1)[0]);
  const x = (value) => CHART.left + (Math.log2(value) - first) / (last - first) * (CHART.right - CHART.left);
  const y = (value) => CHART.bottom - (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low) * (CHART.bottom - CHART.top);
  const parts = [...chartGrid(x, y, low, high)];
  parts.push(...chartLine(curve.map(([at, , bound]) => [x(at), bound && y(bound)]), "bound", "bound"));
  const measured = curve.filter(([, difference]) => difference > 0).map(([at, difference]) => [x(at), y(difference)]);
  parts.push(...chartLine(measured, "measured", "measured"));
  for (const [at, difference, bound] of curve) {
    const words = `α = ${formatted(at)}: measured ${formatted(difference)}, bound ${formatted(bound)}`;
    if (difference > 0) parts.push(element("circle", { class: "dot", cx: x(at), cy: y(difference), r: 2.5 }, element("title", {}, words)));
  }
  const at = x(Math.min(Math.max(alpha, curve[0][0]), curve.at(-1)[0]));
  parts.push(element("line", { class: "now", x1: at, x2: at, y1: CHART.top, y2: CHART.bottom }));
  if (here.difference !== null) parts.push(element("circle", { class: "here", cx: at, cy: y(here.difference), r: 5 }));
  host.replaceChildren(element("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img",
    "aria-label": "Difference between attention and convolution against alpha, with the proven bound" }, ...parts));
}

function* chartGrid(x, y, low, high) {
  const text = (words, at, name = "") => element("text", { ...at, class: name }, words);
  const every = Math.ceil((high - low) / 7);
  for (let power = low; power <= high; power += every) {
    yield element("line", { class: "grid", x1: CHART.left, x2: CHART.right, y1: y(10 ** power), y2: y(10 ** power) });
    yield text(`10${superscript(power)}`, { x: CHART.left - 8, y: y(10 ** power) + 4, "text-anchor": "end" });
  }
  for (const [value, words] of [[1 / 32, "1/32"], [1, "1"], [8, "8"], [128, "128"], [1024, "1024"]]) {
    yield element("line", { class: "grid", x1: x(value), x2: x(value), y1: CHART.top, y2: CHART.bottom });
    yield text(words, { x: x(value), y: CHART.bottom + 22, "text-anchor": "middle" });
  }
  yield element("line", { class: "axis", x1: CHART.left, x2: CHART.right, y1: CHART.bottom, y2: CHART.bottom });
  yield text("locality strength α", { x: (CHART.left + CHART.right) / 2, y: CHART.bottom + 46, "text-anchor": "middle" }, "name");
  const middle = (CHART.top + CHART.bottom) / 2;
  yield text("difference of an output",
    { x: 16, y: middle, "text-anchor": "middle", transform: `rotate(-90 16 ${middle})` }, "name");
}

function* chartLine(places, name, words) {
  const known = places.filter(([, y]) => y !== null);
  if (!known.length) return;
  yield element("polyline", { class: name, points: known.map((place) => place.map((n) => n.toFixed(1)).join()).join(" ") });
  const [x, y] = known.at(-1);
  yield element("text", { class: name, x: x + 10, y: y + 4 }, words);
}

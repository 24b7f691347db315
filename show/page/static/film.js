/* The film: an ellipse for each head, the maps of a layer's heads, and the accuracy, of the epoch that the slider says. */

import { drawFrame, line, scale } from "./chart.js";
import { drawn, find, made, onLook, style } from "./dom.js";
import { axesOf, ellipseOf, film, mapOf } from "./frames.js";
import { rangeOf } from "./numbers.js";
import { Panel } from "./panels.js";
import { rampPicture, readRamp } from "./pictures.js";

const slider = find("epoch"), play = find("play");
const FRAME_MS = 120;
const DOT = Math.max(film.rows, film.columns) / 90; // pixels: the radius of a mean's dot
const CURVE = { width: 780, height: 210, left: 90, right: 715, top: 18, bottom: 174 };
const SIZES = { pads: Array(4).fill(film.padding), input_size: [film.rows, film.columns].map((length) => length - 2 * film.padding),
  padded_size: [film.rows, film.columns] };
let chosen = Math.min(2, film.layers - 1), timer = null, ramp = readRamp();

const layers = Array.from({ length: film.layers }, (_, layer) => {
  const host = made("span", "panel"), button = made("button", "", host), caption = made("figcaption");
  button.type = "button";
  button.setAttribute("aria-label", `Layer ${layer + 1}: show its maps`);
  button.addEventListener("click", () => { chosen = layer; update(); });
  find("layers").append(made("figure", "", button, caption));
  const panel = new Panel(host, 64);
  panel.view({ top: 0, left: 0, rows: film.rows, columns: film.columns });
  return { button, panel, caption };
});
const maps = Array.from({ length: film.heads }, (_, head) => {
  const host = made("div", "panel");
  find("maps").append(made("figure", "", host, made("figcaption", "", `head ${head + 1}`)));
  return new Panel(host, 64);
});

/** The head's ellipse, and a dot at its mean; beyond the square, a triangle at its edge that points there. */
function headMark(ellipse, colour) {
  const [long, short, angle] = axesOf(ellipse), [row, column] = film.query, degrees = angle * 180 / Math.PI;
  const place = [column + 0.5 + ellipse[1], row + 0.5 + ellipse[0]];
  const near = place.map((at, axis) => Math.min(Math.max(at, 2 * DOT), [film.columns, film.rows][axis] - 2 * DOT));
  const isOutside = place.some((at, axis) => at < 0 || at > [film.columns, film.rows][axis]);
  const towards = Math.atan2(place[1] - near[1], place[0] - near[0]) * 180 / Math.PI;
  const mean = isOutside
    ? drawn("path", { d: `M${2 * DOT} 0L${-1.5 * DOT} ${1.4 * DOT}V${-1.4 * DOT}Z`, transform: `translate(${near}) rotate(${towards})` })
    : drawn("circle", { cx: place[0], cy: place[1], r: DOT });
  return drawn("g", { class: "head", style: `color: ${colour}` },
    drawn("ellipse", { rx: long, ry: short, transform: `translate(${place}) rotate(${degrees})` }), mean);
}

function drawLayer(panel, frame, layer) {
  const colours = style("--heads");
  const lines = [...Array(film.columns - 1).keys()].map((at) => `M${at + 1} 0V${film.rows}`).join("")
    + [...Array(film.rows - 1).keys()].map((at) => `M0 ${at + 1}H${film.columns}`).join("");
  panel.mark(SIZES, [["query", ...film.query]]);
  panel.marks.prepend(drawn("path", { class: "grid", d: lines }));
  for (let head = 0; head < film.heads; head++) {
    panel.marks.append(headMark(ellipseOf(frame, layer, head), colours[head % colours.length]));
  }
}

function drawAccuracy(epoch) {
  const last = Math.max(film.accuracies.length - 1, 1);
  const x = scale([0, last], CURVE.left, CURVE.right), y = scale([0, 1], CURVE.bottom, CURVE.top);
  drawFrame(find("curve"), CURVE, [[x(0), "0"], [x(last), `epoch ${last}`]], [0, 0.5, 1].map((level) => [y(level), `${100 * level} %`]),
    "Accuracy over epochs; the mark is the epoch shown", ...line(film.accuracies.map((value, at) => [x(at), y(value)]), "measured"),
    drawn("circle", { class: "here", cx: x(epoch), cy: y(film.accuracies[epoch]), r: 5 }));
}

function update() {
  const start = performance.now(), frame = Number(slider.value), epoch = film.epochs[frame];
  layers.forEach(({ button, panel, caption }, layer) => {
    drawLayer(panel, frame, layer);
    button.setAttribute("aria-pressed", String(layer === chosen));
    const share = Math.round(100 * film.onePixel[frame][layer]);
    caption.textContent = `layer ${layer + 1}: ${film.nonlocality[frame][layer].toFixed(2)} px away, ${share} % one-pixel`;
  });
  maps.forEach((panel, head) => {
    const values = mapOf(frame, chosen, head);
    panel.show(rampPicture(values, film.columns, rangeOf(values)[1], ramp));
  });
  drawAccuracy(epoch);
  const accuracy = (100 * film.accuracies[epoch]).toFixed(1), best = epoch === film.best ? ", the best" : "";
  find("epoch-text").textContent = `epoch ${epoch}${best}: ${accuracy} % right`;
  slider.setAttribute("aria-valuetext", `epoch ${epoch}`);
  find("layer-name").textContent = `layer ${chosen + 1}`;
  performance.measure("conv2attn update", { start, end: performance.now() });
}

function move(frame) {
  slider.value = frame;
  update();
}

/** Plays to the end, or stops. */
function run(plays) {
  clearInterval(timer);
  const last = film.epochs.length - 1;
  if (plays && Number(slider.value) === last) move(0);
  timer = !plays ? null : setInterval(() => {
    move(Number(slider.value) + 1);
    if (Number(slider.value) === last) run(false);
  }, FRAME_MS);
  play.textContent = plays ? "Stop" : "Play";
  play.setAttribute("aria-pressed", String(plays));
}

const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 };
document.addEventListener("keydown", (event) => {
  if (event.target === slider || event.altKey || event.ctrlKey || event.metaKey) return; // the slider knows its keys
  if (event.key in STEPS) move(Number(slider.value) + STEPS[event.key]);
  else if (event.key === " " && event.target.tagName !== "BUTTON") play.click();
  else return;
  event.preventDefault();
});
slider.addEventListener("input", () => { run(false); update(); });
play.addEventListener("click", () => run(timer === null));
onLook(() => { ramp = readRamp(); update(); });
update();

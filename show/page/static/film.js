// The slider, the keys, and what is drawn when they move.

import { colours } from "./canvas.js";
import { drawCurve, drawLayer, drawMap, table } from "./draw.js";
import { film } from "./frames.js";

const slider = document.getElementById("epoch"), play = document.getElementById("play");
const FRAME_MS = 120;
let chosen = Math.min(2, film.layers - 1), timer = null, look = null;

function made(parent, name, ...children) {
  const element = document.createElement(name);
  element.append(...children);
  parent.append(element);
  return element;
}

const panels = Array.from({ length: film.layers }, (_, layer) => {
  const figure = made(document.getElementById("layers"), "figure"), button = made(figure, "button");
  button.type = "button";
  button.setAttribute("aria-label", `Layer ${layer + 1}: show its maps`);
  button.addEventListener("click", () => { chosen = layer; update(); });
  const canvas = made(button, "canvas");
  canvas.style.aspectRatio = `${film.columns} / ${film.rows}`;
  return { button, canvas, caption: made(figure, "figcaption") };
});
const mapCanvases = Array.from({ length: film.heads }, (_, head) => {
  const figure = made(document.getElementById("maps"), "figure"), canvas = made(figure, "canvas");
  canvas.style.aspectRatio = `${film.columns} / ${film.rows}`;
  made(figure, "figcaption", `head ${head + 1}`);
  return canvas;
});

function readColours() {
  const [rule, soft, query, key] = ["--rule", "--soft", "--query", "--key"].map(name => colours(name)[0]);
  look = { rule, soft, query, key, heads: colours("--heads"), table: table(colours("--ramp")) };
}

function update() {
  const start = performance.now(), frame = Number(slider.value), epoch = film.epochs[frame];
  panels.forEach(({ button, canvas, caption }, layer) => {
    drawLayer(canvas, frame, layer, look);
    button.setAttribute("aria-pressed", String(layer === chosen));
    const share = Math.round(100 * film.onePixel[frame][layer]);
    caption.textContent = `layer ${layer + 1}: ${film.nonlocality[frame][layer].toFixed(2)} px away, ${share} % one-pixel`;
  });
  mapCanvases.forEach((canvas, head) => drawMap(canvas, frame, chosen, head, look));
  drawCurve(document.getElementById("curve"), epoch, look);
  const accuracy = (100 * film.accuracies[epoch]).toFixed(1), best = epoch === film.best ? ", the best" : "";
  document.getElementById("epoch-text").textContent = `epoch ${epoch}${best}: ${accuracy} % right`;
  slider.setAttribute("aria-valuetext", `epoch ${epoch}`);
  document.getElementById("layer-name").textContent = `layer ${chosen + 1}`;
  performance.measure("conv2attn update", { start, end: performance.now() });
}

function move(frame) {
  slider.value = frame;
  update();
}

function stop() {
  clearInterval(timer);
  timer = null;
  play.textContent = "Play";
  play.setAttribute("aria-pressed", "false");
}

function start() {
  if (Number(slider.value) === film.epochs.length - 1) move(0);
  play.textContent = "Stop";
  play.setAttribute("aria-pressed", "true");
  timer = setInterval(() => {
    move(Number(slider.value) + 1);
    if (Number(slider.value) === film.epochs.length - 1) stop();
  }, FRAME_MS);
}

const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 };
document.addEventListener("keydown", event => {
  if (event.target === slider || event.altKey || event.ctrlKey || event.metaKey) return; // the slider knows its keys
  if (event.key in STEPS) move(Number(slider.value) + STEPS[event.key]);
  else if (event.key === " " && event.target.tagName !== "BUTTON") play.click();
  else return;
  event.preventDefault();
});
slider.addEventListener("input", () => { stop(); update(); });
play.addEventListener("click", () => timer === null ? start() : stop());
window.addEventListener("resize", update);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); update(); });
readColours();
update();

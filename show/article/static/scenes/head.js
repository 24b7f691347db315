/* Scene 2: one head. Its encoding is a paraboloid over offsets; its vector puts the bottom where it is dragged. */

import { cleared, dragged } from "../../../page/static/dom.js";
import { formatted } from "../../../page/static/numbers.js";
import { css } from "../../../page/static/pictures.js";
import { part, say } from "../views.js";

const REACH = 6; // offsets from −6 to 6 along both axes
const OFFSETS = Array.from({ length: 2 * REACH + 1 }, (_, at) => at - REACH);
const TALL = 0.45; // of the canvas' height: the walls, where the score is 8 below the highest
const TALLEST = 8, AROUND = 5.7, RINGS = 9, SPOKES = 36;

/** r = (|d|², d₁, d₂), as convert/heads/encoding.py. */
export function encodingOf([row, column]) { return [row * row + column * column, row, column]; }

/** v = −α (1, −2 D₁, −2 D₂). */
export function vectorOf(alpha, [row, column]) { return [1, -2 * row, -2 * column].map((part) => -alpha * part); }

export function scoreOf(vector, offset) { return encodingOf(offset).reduce((sum, part, at) => sum + part * vector[at], 0); }

export class HeadScene {
  static first = { "head.at": [-2, 3], "head.alpha": 0.25 };
  static limits = { "head.at": [-REACH, REACH], "head.alpha": [1 / 32, 1024] };

  constructor(app, host) {
    Object.assign(this, { app, host, canvas: part(host, "surface") });
    dragged(this.canvas, (event) => this.moveTo(this.offsetAt(event)),
      (step) => this.moveTo(app.state.get("head.at").map((at, axis) => at + step[axis] / 2)), app.state.done);
  }

  moveTo(at) {
    this.app.state.set({ "head.at": at.map((value) => Math.min(Math.max(Math.round(4 * value) / 4, -REACH), REACH)) }, this.host.id);
  }

  numbers() {
    const center = this.app.state.get("head.at"), alpha = this.app.state.get("head.alpha"), vector = vectorOf(alpha, center);
    const scores = OFFSETS.map((row) => OFFSETS.map((column) => scoreOf(vector, [row, column])));
    return { center, alpha, vector, scores, highest: alpha * encodingOf(center)[0] };
  }

  draw() {
    const { vector, scores, highest, center, alpha } = this.numbers(), words = vector.map((value) => formatted(value));
    this.drawSurface(scores, highest);
    part(this.host, "vector").textContent = `v = (${words.join(", ")})`;
    ["bowl", "rows", "columns"].forEach((name, at) => this.drawPart(part(this.host, name), vector[at], at));
    const place = `${formatted(center[0])} rows and ${formatted(center[1])} columns from the query`;
    say(this.host, `v = (${words.join(", ")}) puts the bottom ${place}; a pixel beside it scores ${formatted(alpha)} less.`);
  }

  /** From an offset and a height (0 to 1) to pixels of the canvas, seen from above at an angle. */
  place([row, column], up = 0) {
    const { clientWidth: width, clientHeight: height } = this.canvas, unit = Math.min(width / (4 * REACH + 3), height / (3 * REACH + 1));
    return [width / 2 + (column - row) * unit, height * 0.66 + (column + row) * unit / 2 - up * height * TALL];
  }

  offsetAt(event) {
    const box = this.canvas.getBoundingClientRect(), [x0, y0] = this.place([0, 0]), [x1, y1] = this.place([0, 1]);
    const across = (event.clientX - box.left - x0) / (x1 - x0), down = (event.clientY - box.top - y0) / (y1 - y0);
    return [(down - across) / 2, (down + across) / 2];
  }

  /** The bowl α |d − D|², ring by ring from its back to its front, over squares with the colour of their attention. */
  drawSurface(scores, highest) {
    const context = cleared(this.canvas), { look: { colours } } = this.app, { center, alpha } = this.numbers();
    this.drawFloor(context, scores, highest);
    let widest = Math.min(Math.sqrt(TALLEST / alpha), AROUND);
    const rim = () => this.place(center.map((at) => at - widest * Math.SQRT1_2), alpha * widest ** 2 / TALLEST)[1];
    while (widest > 1 && rim() < 4) widest *= 0.95; // as high as the canvas, which has no height where the scene is hidden
    const ring = (number) => number / RINGS * widest;
    const at = (radius, turn) => this.place([Math.cos(turn), Math.sin(turn)].map((side, axis) => center[axis] - radius * side),
      alpha * radius ** 2 / TALLEST);
    const patches = [];
    for (let spoke = 0; spoke < SPOKES; spoke++) {
      const turn = (spoke + 0.5) / SPOKES * 2 * Math.PI, depth = -Math.cos(turn) - Math.sin(turn);
      for (let number = 0; number < RINGS; number++) patches.push({ spoke, number, depth: depth * (number + 0.5) });
    }
    context.strokeStyle = css(colours.soft, 0.7);
    context.fillStyle = css(colours.faint, 0.3);
    context.lineWidth = 0.7;
    for (const { spoke, number } of patches.sort((a, b) => a.depth - b.depth)) {
      const [from, to] = [spoke, spoke + 1].map((each) => each / SPOKES * 2 * Math.PI);
      context.beginPath();
      for (const [out, turn] of [[0, from], [0, to], [1, to], [1, from]]) context.lineTo(...at(ring(number + out), turn));
      context.closePath();
      context.fill();
      context.stroke();
    }
    this.drawBottom(context, colours);
  }

  drawFloor(context, scores, highest) {
    const { look: { ramp, colours } } = this.app;
    context.strokeStyle = css(colours.rule);
    context.lineWidth = 1;
    scores.forEach((row, r) => row.forEach((score, c) => {
      const from = 3 * Math.round(255 * Math.exp(score - highest)); // of what the bottom would get
      context.beginPath();
      for (const [up, left] of [[-0.5, -0.5], [-0.5, 0.5], [0.5, 0.5], [0.5, -0.5]]) {
        context.lineTo(...this.place([OFFSETS[r] + up, OFFSETS[c] + left]));
      }
      context.closePath();
      context.fillStyle = css([...ramp.subarray(from, from + 3)]);
      context.fill();
      context.stroke();
    }));
  }

  drawBottom(context, colours) {
    const mark = (offset, colour, radius) => {
      context.beginPath();
      context.arc(...this.place(offset), radius, 0, 2 * Math.PI);
      context.fillStyle = css(colour);
      context.fill();
      context.strokeStyle = css(colours.paper);
      context.lineWidth = 1.5;
      context.stroke();
    };
    mark([0, 0], colours.query, 5);
    mark(this.app.state.get("head.at"), colours.key, 8);
  }

  /** One number of the encoding over the offsets, and its factor. */
  drawPart(host, factor, number) {
    const canvas = host.querySelector("canvas"), { look: { colours } } = this.app;
    const values = OFFSETS.flatMap((row) => OFFSETS.map((column) => encodingOf([row, column])[number]));
    const largest = Math.max(...values), context = canvas.getContext("2d"), image = context.createImageData(OFFSETS.length, OFFSETS.length);
    values.forEach((value, at) => {
      const share = Math.abs(value) / largest, colour = value < 0 ? colours.query : colours.key;
      image.data.set([0, 1, 2].map((band) => colours.paper[band] + share * (colour[band] - colours.paper[band])).concat(255), 4 * at);
    });
    context.putImageData(image, 0, 0);
    host.querySelector("b").textContent = formatted(factor);
  }

  demo(t) {
    const turn = 2 * Math.PI * t, at = [3.5 * Math.sin(turn) - 2, 3.5 * Math.cos(turn) - 0.5];
    return { "head.at": at.map((value) => Math.round(4 * value) / 4) };
  }
}

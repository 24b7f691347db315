/* Scene 1: a convolution is a sum over neighbours. */

import { cleared, made } from "../../../page/static/dom.js";
import { formatted, rangeOf } from "../../../page/static/numbers.js";
import { termsAt } from "../../../page/static/layer.js";
import { css, greyPicture } from "../../../page/static/pictures.js";
import { QueryView, part, say } from "../views.js";

const MOST_CELLS = 25;

export class SumScene {
  static first = { query: [12, 14] };

  constructor(app, host) {
    Object.assign(this, { app, host, image: new QueryView(app, part(host, "image")) });
    this.output = new QueryView(app, part(host, "output"), { isOutput: true });
  }

  numbers() {
    const { subject } = this.app, terms = termsAt(subject, this.app.query());
    const sum = terms.reduce((total, { product }) => total + product, subject.bias);
    return { terms, bias: subject.bias, sum, output: this.app.convolved };
  }

  draw() {
    const { subject, convolved, look } = this.app, query = this.app.query(), mark = this.app.markOf();
    const { terms, sum } = this.numbers();
    this.image.draw(look.picture, subject.centers.map(([row, column]) => ["key", mark[0] + row, mark[1] + column]));
    this.output.draw(greyPicture(convolved, subject.output_size[1], rangeOf(convolved)));
    this.drawCells(terms);
    this.drawStairs(terms, subject.bias);
    const products = terms.map(({ product }) => formatted(product)).join(" + ").replaceAll("+ −", "− ");
    const written = terms.length > MOST_CELLS ? `a sum of ${terms.length} terms` : products;
    const bias = subject.bias ? `${subject.bias < 0 ? " − " : " + "}${formatted(Math.abs(subject.bias))} (bias)` : "";
    part(this.host, "written").textContent = `${written}${bias} = ${formatted(sum)}`;
    say(this.host, `Output (${query.join(", ")}) is ${formatted(sum)}: a sum over ${terms.length} neighbours.`);
  }

  drawCells(terms) {
    const cells = part(this.host, "cells"), columns = this.app.subject.kernel_size[1];
    cells.hidden = terms.length > MOST_CELLS;
    cells.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    cells.replaceChildren(...(cells.hidden ? [] : terms).map(({ pixel, tap, product }) => {
      const swatch = made("i", "swatch"), [red, green = red, blue = red] = pixel.map((value) => 255 * value);
      swatch.style.background = css([red, green, blue].map(Math.round));
      const words = pixel.length === 1 && terms.length < 16 ? `${formatted(pixel[0], 2)} × ${formatted(tap[0], 2)}` : "";
      const factors = made("span", "factors", words);
      return made("div", "cell", swatch, factors, made("b", "", formatted(product, 2)));
    }));
  }

  /** Each term as a step up or down; the last bar is the sum. */
  drawStairs(terms, bias) {
    const canvas = part(this.host, "stairs"), context = cleared(canvas), { clientWidth: width, clientHeight: height } = canvas;
    const steps = [...terms.map(({ product }) => product), bias].filter((step, at) => at < terms.length || step !== 0);
    const levels = steps.reduce((found, step) => [...found, found.at(-1) + step], [0]);
    const [low, high] = rangeOf(levels), bar = width / (steps.length + 1.5), { look: { colours } } = this.app;
    const y = (value) => 4 + (high - value) / (high - low || 1) * (height - 8);
    const box = (at, from, to, colour, wide) => {
      context.fillStyle = css(colour);
      context.fillRect(at * bar, Math.min(y(from), y(to)) - 0.5, bar * wide - 2, Math.abs(y(from) - y(to)) + 1);
    };
    steps.forEach((step, at) => box(at, levels[at], levels[at + 1], step < 0 ? colours.query : colours.key, 1));
    box(steps.length + 0.25, 0, levels.at(-1), colours.ink, 1.25);
    context.fillStyle = css(colours.soft);
    context.fillRect(0, Math.round(y(0)), width, 1);
  }

  demo(t) {
    const [rows, columns] = this.app.subject.output_size;
    return { query: [Math.round(rows * (0.35 + 0.1 * Math.sin(6.3 * t))), Math.round(columns * (0.2 + 0.5 * t))] };
  }
}

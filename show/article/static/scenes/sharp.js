/* Scene 4: alpha, from a fog to one pixel; where exp(−α) is 0 in floating point, nothing but the pixel is left. */

import { cleared } from "../../../page/static/dom.js";
import { formatted, superscript } from "../../../page/static/numbers.js";
import { Panel } from "../../../page/static/panels.js";
import { css, rampPicture } from "../../../page/static/pictures.js";
import { part, say } from "../views.js";

const NEAR = 8; // pixels around the target
const ROW = Array.from({ length: 2 * NEAR + 1 }, (_, at) => at - NEAR);
const FAR = 64; // offsets that are counted: beyond, exp(−α d²) is 0 for every α of the slider but the flattest
const SMALLEST = { 32: 2 ** -149, 64: 2 ** -1074 }; // positive numbers
const LOWEST = { 32: -48, 64: -340 }; // powers of ten that the profile shows

/** exp(−α d²) in single or double precision, of a squared distance. */
export function weightOf(alpha, squared, bits) {
  const weight = Math.exp(-alpha * squared);
  return bits === 32 ? Math.fround(weight) : weight;
}

export class SharpScene {
  static first = { "sharp.alpha": 1, "sharp.bits": 32 };
  static limits = { "sharp.alpha": [1 / 32, 1024], "sharp.bits": [32, 64] };

  constructor(app, host) {
    Object.assign(this, { app, host, panel: new Panel(part(host, "fog"), 24) });
    for (const button of part(host, "bits").children) {
      button.addEventListener("click", () => app.choose({ "sharp.bits": Number(button.value) }, host.id));
    }
  }

  get bits() { return this.app.state.get("sharp.bits") === 64 ? 64 : 32; }

  /** Probabilities around the target, on a plane without borders, and the number of pixels whose probability is not 0. */
  numbers() {
    const alpha = this.app.state.get("sharp.alpha"), { bits } = this, round = bits === 32 ? Math.fround : (value) => value;
    let total = 0, count = 0;
    for (let row = -FAR; row <= FAR; row++) {
      for (let column = -FAR; column <= FAR; column++) {
        const weight = weightOf(alpha, row * row + column * column, bits);
        total += weight;
        count += weight > 0;
      }
    }
    const shares = ROW.map((row) => ROW.map((column) => round(weightOf(alpha, row * row + column * column, bits) / round(total))));
    return { alpha, bits, shares, count, neighbour: shares[NEAR][NEAR + 1], target: shares[NEAR][NEAR], exact: Math.exp(-alpha) };
  }

  draw() {
    const found = this.numbers(), { alpha, bits, count, neighbour, target, exact } = found, whole = (2 * FAR + 1) ** 2;
    for (const button of part(this.host, "bits").children) button.setAttribute("aria-pressed", String(Number(button.value) === bits));
    this.drawFog(found);
    this.drawProfile(found);
    const name = bits === 32 ? "single" : "double";
    const words = neighbour > 0 ? `${formatted(neighbour)}: it still counts` : "exactly 0";
    const power = exact === 0 ? "below 10⁻³²³" : formatted(exact);
    part(this.host, "written").textContent = `exp(−α) = ${power}; in ${name} precision the neighbour's share is ${words}`;
    const others = count >= whole ? "every pixel" : count === 1 ? "one pixel" : `${count.toLocaleString("en")} pixels`;
    const beside = neighbour ? formatted(neighbour) : "exactly 0";
    say(this.host, `At α = ${formatted(alpha)} the head gives its pixel ${formatted(target)} and each neighbour ${beside}: `
      + `in ${name} precision, ${others} get${count === 1 ? "s" : ""} any attention.`);
  }

  drawFog({ shares, target }) {
    const counted = shares.flatMap((row, r) => row.flatMap((share, c) => share > 0 ? [["counts", r + 0.06, c + 0.06, 0.88, 0.88]] : []));
    this.panel.show(rampPicture(shares.flat(), ROW.length, target, this.app.look.ramp), counted);
  }

  /** The probabilities of the target's row on a logarithmic scale: a parabola, down to the smallest number there is. */
  drawProfile({ shares, bits }) {
    const canvas = part(this.host, "profile"), context = cleared(canvas), { clientWidth: width, clientHeight: height } = canvas;
    const { look: { colours } } = this.app, left = 46, bar = (width - left) / ROW.length, lowest = LOWEST[bits];
    const y = (value) => 8 + Math.min(Math.log10(value) / lowest, 1) * (height - 30);
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = css(colours.soft);
    for (const power of bits === 32 ? [0, -15, -30, -45] : [0, -100, -200, -300]) {
      context.fillText(power ? `10${superscript(power)}` : "1", 0, y(10 ** power) + 4);
      context.fillRect(left, y(10 ** power), width - left, 0.5);
    }
    const floor = y(SMALLEST[bits]);
    shares[NEAR].forEach((share, at) => {
      if (share > 0) {
        context.fillStyle = css(at === NEAR ? colours.query : colours.key);
        context.fillRect(left + at * bar + 1, y(share), bar - 2, Math.max(floor - y(share), 2));
      } else {
        context.fillStyle = css(colours.soft);
        context.fillText("0", left + at * bar + bar / 2 - 3, floor + 16);
      }
    });
    context.fillStyle = css(colours.ink);
    context.fillRect(left, floor, width - left, 1.5);
  }

  demo(t) { return { "sharp.alpha": 2 ** (-4 + 11 * t) }; }
}

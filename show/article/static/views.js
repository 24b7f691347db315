/* What scenes are made of: the image with its query, maps of outputs, panels of heads, sliders. No scene draws these itself. */

import { formatted } from "../../page/static/numbers.js";
import { Panel, paintAttention, windowAround } from "../../page/static/panels.js";

const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const MANY = 16; // heads whose panels are too small for words
const EXACT = [103, 104, 745, 746]; // where exp(−α) becomes 0: in single precision, in double
const STEPS = Array.from({ length: 61 }, (_, step) => Number((2 ** (step / 4 - 5)).toPrecision(3)));
export const ALPHAS = [...STEPS, ...EXACT].sort((a, b) => a - b);

/** The element of a section that has a role in its scene. */
export function part(host, name) { return host.querySelector(`[data-part="${name}"]`); }

export function made(name, className = "", ...children) {
  const element = document.createElement(name);
  element.className = className;
  element.append(...children);
  return element;
}

/** Dragging by pointer, to(event), and by the arrow keys, by([rows, columns]); either ends with a step of the history. */
export function dragged(host, state, to, by = null) {
  host.addEventListener("pointerdown", (event) => { host.setPointerCapture(event.pointerId); to(event); });
  host.addEventListener("pointermove", (event) => { if (host.hasPointerCapture(event.pointerId)) to(event); });
  host.addEventListener("pointerup", () => state.commit());
  if (by) host.addEventListener("keydown", (event) => {
    const step = KEYS[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    by(step.map((length) => length * (event.shiftKey ? 5 : 1)));
    state.commitSoon();
  });
}

/** A slider over ALPHAS for a value of the state; the template has its label. */
export function alphaSlider(host, state, name) {
  const slider = host.querySelector(`[data-alpha="${name}"]`), output = slider.closest(".alpha").querySelector("output");
  slider.max = ALPHAS.length - 1;
  slider.addEventListener("input", () => state.set({ [name]: ALPHAS[slider.value] }, host.id));
  slider.addEventListener("change", () => state.commit());
  return () => {
    const alpha = state.get(name), nearest = ALPHAS.reduce((best, value, at) =>
      Math.abs(Math.log(value / alpha)) < Math.abs(Math.log(ALPHAS[best] / alpha)) ? at : best, 0);
    slider.value = nearest;
    output.textContent = `= ${formatted(alpha)}`;
    slider.setAttribute("aria-valuetext", formatted(alpha));
  };
}

/** The padded input, over which a query is dragged. */
export class InputView {
  constructor(app, host, name = "query") {
    Object.assign(this, { app, name, panel: new Panel(host, 64) });
    const scene = host.closest("section").id;
    dragged(host, app.state, (event) => app.moveQuery(name, app.queryAt(this.panel.pixelAt(event)), scene),
      (step) => app.moveQuery(name, app.query(name).map((at, axis) => at + step[axis]), scene));
  }

  draw(boxes = [], picture = this.app.look.picture, blank = false) {
    const { subject, query, markOf } = this.app, [rows, columns] = subject.padded_size;
    this.panel.paint({ top: 0, left: 0, rows, columns }, picture);
    this.panel.mark(subject, [...boxes, ["query", ...markOf.call(this.app, query.call(this.app, this.name)), 1, 1]], blank);
  }
}

/** Numbers over all outputs, as grey values or as signed colours; the query can be dragged over it, too. */
export class OutputView {
  constructor(app, host, name = "query") {
    Object.assign(this, { app, name, panel: new Panel(host, 64) });
    dragged(host, app.state, (event) => app.moveQuery(name, this.panel.pixelAt(event), host.closest("section").id));
  }

  draw(picture) {
    const size = this.app.subject.output_size, [rows, columns] = size;
    this.panel.paint({ top: 0, left: 0, rows, columns }, picture);
    this.panel.mark({ pads: [0, 0, 0, 0], input_size: size, padded_size: size }, [["query", ...this.app.query(this.name), 1, 1]]);
  }
}

/** A panel for each head, as its tap lies in the kernel; pressing one calls pressed(head), pointing at one pointed(head or null). */
export class HeadsView {
  constructor(app, host, { pressed, pointed }) { Object.assign(this, { app, host, pressed, pointed, heads: [] }); }

  make({ centers: { length }, kernel_size: [, columns] }) {
    this.heads = Array.from({ length }, (_, head) => {
      const host = made("span", "panel"), button = made("button", "", host), caption = made("figcaption");
      button.type = "button";
      button.addEventListener("click", () => this.pressed(head));
      for (const [type, at] of [["pointerenter", head], ["focus", head], ["pointerleave", null], ["blur", null]]) {
        button.addEventListener(type, () => this.pointed(at));
      }
      return { button, caption, panel: new Panel(host, 24), figure: made("figure", "", button, ...(length > MANY ? [] : [caption])) };
    });
    this.host.replaceChildren(...this.heads.map(({ figure }) => figure));
    this.host.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    this.host.classList.toggle("many", length > MANY);
  }

  /** Draws each head's attention; captions are made of fragments, and of sentences for people who do not see the panel. */
  draw(attentions, mark, captions) {
    const { subject, look: { picture, ramp, faint } } = this.app;
    if (this.heads.length !== attentions.length || this.columns !== subject.kernel_size[1]) this.make(subject);
    this.columns = subject.kernel_size[1];
    const window = windowAround(subject, mark);
    const highest = Math.max(...attentions.map(({ rows, columns }) => Math.max(...rows) * Math.max(...columns)));
    this.heads.forEach(({ button, caption, panel }, head) => {
      const { words, parts, off } = captions[head];
      panel.paint(window, faint, (bytes) => paintAttention(bytes, { window, picture, ramp }, attentions[head], highest));
      panel.mark(subject, [["query", ...mark, 1, 1]]);
      caption.replaceChildren(...parts);
      button.setAttribute("aria-label", words);
      button.setAttribute("aria-pressed", String(off));
    });
  }
}

/** A sentence below a scene, which screen readers say when it changes. */
export function say(host, words) {
  const place = part(host, "says");
  if (place.textContent !== words) place.textContent = words;
}

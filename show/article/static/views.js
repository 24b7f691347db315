/* What scenes are made of: panels over which the query is dragged, and sliders. No scene draws these itself. */

import { dragged } from "../../page/static/dom.js";
import { formatted } from "../../page/static/numbers.js";
import { Panel } from "../../page/static/panels.js";

const EXACT = [103, 104, 745, 746]; // where exp(−α) becomes 0: in single precision, in double
const STEPS = Array.from({ length: 61 }, (_, step) => Number((2 ** (step / 4 - 5)).toPrecision(3)));
export const ALPHAS = [...STEPS, ...EXACT].sort((a, b) => a - b);

/** The element of a section that has a role in its scene. */
export function part(host, name) { return host.querySelector(`[data-part="${name}"]`); }

/** The sliders over ALPHAS in a section, for values of the state; the function that is returned shows these. */
export function alphaSliders(section, state) {
  const sliders = [...section.querySelectorAll("[data-alpha]")];
  for (const slider of sliders) {
    slider.max = ALPHAS.length - 1;
    slider.addEventListener("input", () => state.set({ [slider.dataset.alpha]: ALPHAS[slider.value] }, section.id));
    slider.addEventListener("change", () => state.commit());
  }
  return () => {
    for (const slider of sliders) {
      const alpha = state.get(slider.dataset.alpha), distance = (value) => Math.abs(Math.log(value / alpha));
      slider.value = ALPHAS.reduce((best, value, at) => distance(value) < distance(ALPHAS[best]) ? at : best, 0);
      slider.closest(".alpha").querySelector("output").textContent = `= ${formatted(alpha)}`;
      slider.setAttribute("aria-valuetext", formatted(alpha));
    }
  };
}

/** The padded input, or with isOutput all outputs, over which a query is dragged; the arrow keys move it, too. */
export class QueryView {
  constructor(app, host, { name = "query", isOutput = false } = {}) {
    Object.assign(this, { app, name, isOutput, panel: new Panel(host, 64) });
    const move = (query) => app.moveQuery(name, query, host.closest("section").id);
    const to = (event) => move(isOutput ? this.panel.pixelAt(event) : app.queryAt(this.panel.pixelAt(event)));
    const by = (step) => move(app.query(name).map((at, axis) => at + step[axis]));
    dragged(host, to, isOutput ? null : by, app.state.done);
  }

  /** A picture with boxes and the query; of the input, by default it is the input, and blank says that padding is no key. */
  draw(picture = this.app.look.picture, boxes = [], blank = false) {
    const { app } = this, query = app.query(this.name);
    if (this.isOutput) return this.panel.show(picture, [["query", ...query]]);
    const [rows, columns] = app.subject.padded_size;
    this.panel.paint({ top: 0, left: 0, rows, columns }, picture);
    this.panel.mark(app.subject, [...boxes, ["query", ...app.markOf(query)]], blank);
  }
}

/** A sentence below a scene, which screen readers say when it changes. */
export function say(host, words) {
  const place = part(host, "says");
  if (place.textContent !== words) place.textContent = words;
}

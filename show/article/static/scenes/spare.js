/* Scene 7: a spare head that learned to look; its attention before and after training. */

import { dragged } from "../../../page/static/dom.js";
import { largestOf } from "../../../page/static/numbers.js";
import { Panel } from "../../../page/static/panels.js";
import { CELLS, PITCH, TOKEN, clean, drawnPage, networkOf, psnr } from "../network.js";
import { greyPicture, rampPicture } from "../../../page/static/pictures.js";
import { part, say } from "../views.js";

const PER_CELL = PITCH / TOKEN; // tokens of a stamp's side
const TOKENS = CELLS.map((count) => count * PER_CELL);
const FAINT = 0.25; // of the page is seen below the lowest attention

export class SpareScene {
  static first = { "spare.token": [4, 4], "spare.page": 1, "spare.kinds": 2 };
  static limits = { "spare.token": [0, TOKENS[1] - 1], "spare.page": [1, 1e6], "spare.kinds": [1, CELLS[0] * CELLS[1]] };

  constructor(app, host) {
    const { tensors } = app;
    Object.assign(this, { app, host, stamps: tensors.stamps });
    this.networks = Object.fromEntries(["start", "alone", "grafted"].map((name) => [name, networkOf(tensors, name)]));
    const names = ["page", "before", "after", "truth", "alone", "grafted"];
    this.panels = Object.fromEntries(names.map((name) => [name, new Panel(part(host, name), 48)]));
    for (const name of ["page", "before", "after"]) this.listen(this.panels[name], name === "page");
    part(host, "again").addEventListener("click", () => app.choose({ "spare.page": app.state.get("spare.page") + 1 }, host.id));
    this.box = part(host, "recurs");
    this.box.addEventListener("change", () => app.choose({ "spare.kinds": this.box.checked ? 2 : CELLS[0] * CELLS[1] }, host.id));
  }

  /** The query follows the mouse, a finger that drags, and the keys. */
  listen(panel, keys) {
    const to = (event) => this.moveTo(panel.pixelAt(event).map((at) => Math.floor(at / TOKEN)));
    const by = (step) => this.moveTo(this.token.map((at, axis) => at + step[axis]));
    dragged(panel.host, to, keys ? by : null, this.app.state.done);
    panel.host.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") to(event); });
  }

  moveTo(token) {
    const inside = token.map((at, axis) => Math.min(Math.max(at, 0), TOKENS[axis] - 1));
    if (String(inside) !== String(this.token)) this.app.state.set({ "spare.token": inside }, this.host.id);
  }

  get token() { return this.app.state.get("spare.token").map((at, axis) => Math.min(Math.max(Math.round(at), 0), TOKENS[axis] - 1)); }

  /** The page and what the three networks make of it. */
  get cleaned() {
    const seed = this.app.state.get("spare.page"), kinds = Math.round(this.app.state.get("spare.kinds"));
    return this.app.once("spare", [seed, kinds], () => {
      const page = drawnPage(this.stamps, seed, kinds), seen = { numbers: page.noisy, size: page.size };
      return { page, ...Object.fromEntries(Object.entries(this.networks).map(([name, network]) => [name, clean(network, seen)])) };
    });
  }

  /** The shares of the query before and after, and what of them lies on copies of the stamp under it. */
  numbers() {
    const { page: { noisy, clean: truth, kinds }, start, alone, grafted } = this.cleaned, [row, column] = this.token;
    const at = row * TOKENS[1] + column;
    const [before, after] = [start, grafted].map(({ shares }) => [...shares[at]]);
    const kindOf = (token) => kinds[Math.floor(token / TOKENS[1] / PER_CELL) * CELLS[1] + Math.floor(token % TOKENS[1] / PER_CELL)];
    const onCopies = (shares) => shares.reduce((sum, share, token) => kindOf(token) === kindOf(at) ? sum + share : sum, 0);
    const decibels = [alone, grafted].map(({ cleaned }) => psnr(cleaned, truth)), copies = [before, after].map(onCopies);
    return { before, after, copies, noisy, truth, alone: alone.cleaned, grafted: grafted.cleaned, decibels, noise: psnr(noisy, truth) };
  }

  draw() {
    const { page } = this.cleaned, found = this.numbers(), [, width] = page.size, range = [-1.4, 1.4];
    const query = [["query", ...this.token.map((at) => at * TOKEN), TOKEN, TOKEN]];
    for (const name of ["truth", "alone", "grafted"]) this.panels[name].show(greyPicture(found[name], width, range));
    this.panels.page.show(greyPicture(found.noisy, width, [-2.5, 2.5]), query);
    for (const name of ["before", "after"]) this.panels[name].show(this.lookPicture(found.noisy, width, found[name]), query);
    this.box.checked = this.app.state.get("spare.kinds") < CELLS[0] * CELLS[1];
    const [without, with_, noise] = [...found.decibels, found.noise].map((value) => `${value.toFixed(1)} dB`);
    const [before, after] = found.copies.map((value) => `${Math.round(100 * value)}\u00a0%`);
    part(this.host, "written").textContent = `cleaned without the head ${without}, with it ${with_} (the noisy page: ${noise})`;
    say(this.host, `Before training ${before} of this query's attention lies on stamps like the one under it, after training ${after}.`);
  }

  /** The page, faint, under the colours of a query's attention; the largest share has the last colour. */
  lookPicture(noisy, width, shares) {
    const spread = Float64Array.from(noisy, (_, at) => shares[Math.floor(at / width / TOKEN) * TOKENS[1] + Math.floor(at % width / TOKEN)]);
    return rampPicture(spread, width, largestOf(shares), this.app.look.ramp, greyPicture(noisy, width, [-2.5, 2.5]), FAINT);
  }

  demo(t) { return { "spare.token": [Math.round(4 + 3 * Math.sin(6.28 * t)), Math.round(1 + 9 * t)] }; }
}

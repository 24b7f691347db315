/* Scene 3: nine heads are the kernel. Each carries one weight; a head that is switched off is a weight of 0. */

import { made } from "../../../page/static/dom.js";
import { formatted, rangeOf } from "../../../page/static/numbers.js";
import { addedBy, attend, attentionAt, roundingBound, seenBy, targetOf } from "../../../page/static/layer.js";
import { HeadPanels } from "../../../page/static/panels.js";
import { css, greyPicture } from "../../../page/static/pictures.js";
import { QueryView, part, say } from "../views.js";

export class NineScene {
  static first = { "nine.alpha": 128, "nine.off": "" };
  static limits = { "nine.alpha": [1 / 32, 1024] };

  constructor(app, host) {
    Object.assign(this, { app, host, under: null, image: new QueryView(app, part(host, "image")) });
    this.output = new QueryView(app, part(host, "output"), { isOutput: true });
    const pointed = (head) => { if (this.under !== head) { this.under = head; this.drawInput(); } };
    this.heads = new HeadPanels(part(host, "heads"), { pressed: (head) => this.toggle(head), pointed });
  }

  get off() { return new Set(this.app.state.get("nine.off").split(",").filter(Boolean).map(Number)); }

  toggle(head) {
    const off = this.off;
    if (!off.delete(head)) off.add(head);
    this.app.choose({ "nine.off": [...off].sort((a, b) => a - b).join(",") }, this.host.id);
  }

  numbers() {
    const { subject } = this.app, alpha = this.app.state.get("nine.alpha"), { off } = this;
    const attentions = attentionAt(subject, this.app.query(), alpha);
    const taps = subject.taps.map((tap, head) => off.has(head) ? tap.map(() => 0) : tap);
    const output = this.app.once("nine", [subject, alpha, String([...off])], () => attend(subject, alpha, { taps }));
    const seen = seenBy(subject, attentions, true), added = addedBy(taps, seen);
    return { alpha, attentions, seen, added, taps, output, sum: added.reduce((sum, value) => sum + value, subject.bias) };
  }

  draw() {
    const { subject, look } = this.app, { off } = this, found = this.numbers(), largest = Math.max(...subject.taps.flat().map(Math.abs));
    this.heads.draw(subject, found.attentions, this.app.markOf(), look,
      subject.taps.map((tap, head) => this.caption(head, tap, found, off.has(head), largest, look)));
    this.drawInput();
    this.output.draw(greyPicture(found.output, subject.output_size[1], rangeOf(this.app.convolved)));
    const gone = off.size ? `, without ${off.size} of them,` : "";
    part(this.host, "written").textContent = `${subject.taps.length} heads add up to ${formatted(found.sum)}`;
    const same = this.app.convolvedAt(this.app.query()), apart = Math.abs(found.sum - same) > roundingBound(subject);
    const why = !apart ? "" : off.size ? " A head that is off is a weight of 0, which is another kernel."
      : ` At α = ${formatted(found.alpha)} heads still see a blur, not one pixel: the larger α, the nearer the two.`;
    const both = `add up to ${formatted(found.sum)}; the convolution has ${formatted(same)} here`;
    say(this.host, `The ${subject.taps.length} heads${gone} ${both}.${why}`);
  }

  caption(head, tap, { seen, added }, off, largest, { colours }) {
    const swatch = made("i", "swatch"), sign = tap.reduce((sum, weight) => sum + weight, 0) < 0 ? colours.query : colours.key;
    swatch.style.background = css(sign, Math.sqrt(Math.max(...tap.map(Math.abs)) / (largest || 1)));
    const weight = tap.length === 1 ? formatted(tap[0], 2) : "W", value = tap.length === 1 ? formatted(seen[head][0], 2) : "x";
    const words = `Head ${head} carries ${tap.map((each) => formatted(each, 2)).join(", ")} and adds ${formatted(added[head], 2)}`;
    return { off, words: `${words}. Switch it off.`, parts: off ? [swatch, "off"]
      : [swatch, made("span", "factors", `${weight} × ${value} = `), formatted(added[head], 2)] };
  }

  drawInput() {
    const { subject } = this.app, query = this.app.query(), width = subject.padded_size[1];
    this.image.draw(this.app.look.picture, subject.centers.map((_, head) => {
      const key = targetOf(subject, head, query);
      return [head === this.under ? "key under" : "key", Math.floor(key / width), key % width];
    }));
  }

  demo(t) {
    const [rows, columns] = this.app.subject.output_size;
    const query = [rows * (0.3 + 0.25 * t), columns * (0.3 + 0.3 * Math.sin(3 * t))].map(Math.round);
    return { query, "nine.alpha": 2 ** (7 - 9 * Math.sin(Math.PI * t)) };
  }
}

/* Scene 5: the border. Without the padded keys, heads whose pixel lies outside look at the nearest one inside. */

import { formatted, largestGap } from "../../../page/static/numbers.js";
import { attend, attentionAt, roundingBound } from "../../../page/static/layer.js";
import { signedPicture } from "../../../page/static/pictures.js";
import { QueryView, part, say } from "../views.js";

export class BorderScene {
  static first = { "border.alpha": 128, "border.inner": 1, "border.query": [0, 24] };
  static limits = { "border.alpha": [1 / 32, 1024], "border.inner": [0, 1] };

  constructor(app, host) {
    Object.assign(this, { app, host, box: part(host, "padded") });
    this.image = new QueryView(app, part(host, "image"), { name: "border.query" });
    this.errors = new QueryView(app, part(host, "errors"), { name: "border.query", isOutput: true });
    this.box.addEventListener("change", () => app.choose({ "border.inner": this.box.checked ? 0 : 1 }, host.id));
  }

  /** Attention and its distance from attention over all keys; an output is wrong where that is more than rounding. */
  numbers() {
    const { subject } = this.app, alpha = this.app.state.get("border.alpha"), inner = this.app.state.get("border.inner") >= 0.5;
    const compared = this.app.once("border", [subject, alpha, inner], () => {
      const right = attend(subject, alpha), output = inner ? attend(subject, alpha, { inner }) : right, rounding = roundingBound(subject);
      const errors = output.map((value, number) => value - right[number]);
      const wrong = errors.filter((error) => Math.abs(error) > rounding).length;
      return { output, errors, wrong, rounding, gap: largestGap(output, right) };
    });
    return { ...compared, alpha, inner, attentions: attentionAt(subject, this.app.query("border.query"), alpha, { inner }) };
  }

  draw() {
    const { errors, wrong, rounding, gap, inner, attentions } = this.numbers(), { subject, look } = this.app;
    this.box.checked = !inner;
    const looked = attentions.map(({ rows, columns }) => [rows, columns].map((shares) => shares.indexOf(Math.max(...shares))));
    this.image.draw(look.picture, looked.map(([row, column], head) => {
      const shared = looked.slice(0, head).filter(([r, c]) => r === row && c === column).length, inset = 0.14 * Math.min(shared, 3);
      return ["key", row + inset, column + inset, 1 - 2 * inset, 1 - 2 * inset];
    }), inner);
    this.errors.draw(signedPicture(errors, subject.output_size[1], gap, look.colours));
    const pixels = new Set(looked.map(String)).size, share = `${(100 * wrong / errors.length).toFixed(1)} %`;
    const [some, all] = [wrong, errors.length].map((count) => count.toLocaleString("en"));
    part(this.host, "written").textContent = wrong ? `${some} of ${all} outputs are wrong (${share}), by up to ${formatted(gap)}`
      : `none of ${all} outputs is wrong`;
    const query = this.app.query("border.query"), at = query[0] * subject.output_size[1] + query[1];
    say(this.host, `At output (${query.join(", ")}) the ${looked.length} heads look at ${pixels} pixel${pixels === 1 ? "" : "s"}; it is `
      + `${Math.abs(errors[at]) > rounding ? `wrong by ${formatted(Math.abs(errors[at]))}` : "right"}.`);
  }

  demo(t) {
    const [rows, columns] = this.app.subject.output_size;
    return { "border.query": [Math.round(Math.max(0, 0.3 - t) * rows), Math.round(Math.min(1, 0.2 + t) * (columns - 1))] };
  }
}

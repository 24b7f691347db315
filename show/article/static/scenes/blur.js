/* Scene 6: soft attention is a blur, and then the convolution; the certificate is a band around the convolution. */

import { tailFraction } from "../../../page/static/attention.js";
import { drawChart } from "../../../page/static/chart.js";
import { formatted, largestGap, rangeOf } from "../../../page/static/numbers.js";
import { attend, blurred, convolution, roundingBound, tailBound } from "../../../page/static/layer.js";
import { colourPicture, greyPicture, signedPicture } from "../../../page/static/pictures.js";
import { QueryView, part, say } from "../views.js";

const CURVE = Array.from({ length: 31 }, (_, step) => 2 ** (step / 2 - 5)); // the alphas of the chart

export class BlurScene {
  static first = { "blur.alpha": 0.5 };
  static limits = { "blur.alpha": [1 / 32, 1024] };

  constructor(app, host) {
    Object.assign(this, { app, host });
    this.inputs = ["image", "smooth"].map((name) => new QueryView(app, part(host, name)));
    this.outputs = ["heads", "convolved", "difference"].map((name) => new QueryView(app, part(host, name), { isOutput: true }));
  }

  /** Three outputs, and how far apart they are: heads and blur by rounding alone, heads and convolution within the bound. */
  numbers() {
    const { subject, convolved } = this.app, alpha = this.app.state.get("blur.alpha");
    return this.app.once("blur", [subject, alpha], () => {
      const smooth = blurred(subject, alpha), heads = attend(subject, alpha), second = convolution(subject, { planes: smooth });
      const bound = tailBound(subject, alpha), rounding = roundingBound(subject);
      const [same, apart] = [second, convolved].map((other) => largestGap(heads, other));
      return { alpha, smooth, heads, second, bound, rounding, same, apart };
    });
  }

  /** The chart's curve for the present image and layer; blur and convolution are computed, which is faster than the heads. */
  get curve() {
    const { subject, convolved } = this.app;
    return this.app.once("curve", [subject], () => CURVE.map((alpha) => {
      const measured = largestGap(convolution(subject, { planes: blurred(subject, alpha) }), convolved);
      return [alpha, measured, tailBound(subject, alpha) + roundingBound(subject)];
    }));
  }

  draw() {
    const { subject, look, convolved } = this.app, { alpha, smooth, heads, second, bound, rounding, same, apart } = this.numbers();
    const width = subject.output_size[1], range = rangeOf(convolved), differences = heads.map((value, at) => value - convolved[at]);
    this.inputs[0].draw();
    this.inputs[1].draw(colourPicture(smooth, subject.padded_size[1]));
    [greyPicture(heads, width, range), greyPicture(second, width, range), signedPicture(differences, width, apart, look.colours)]
      .forEach((picture, at) => this.outputs[at].draw(picture));
    drawChart(part(this.host, "chart"), this.curve, alpha, { difference: apart, bound: bound + rounding });
    part(this.host, "same").textContent = `heads − (blur, then convolution): at most ${formatted(same)}`;
    const far = formatted(apart), most = formatted(bound + rounding), sign = apart <= bound + rounding ? "≤" : ">";
    part(this.host, "written").textContent = `heads − convolution: at most ${far} ${sign} ${most}, the certificate`;
    say(this.host, `At α = ${formatted(alpha)}, where τ = ${formatted(tailFraction(alpha))}, attention differs from the convolution by up `
      + `to ${far} on this image; no image of this range can make it differ by more than ${most}, `
      + `of which ${formatted(rounding)} is for rounding.`);
  }

  demo(t) { return { "blur.alpha": 2 ** (-3 + 7 * t) }; }
}

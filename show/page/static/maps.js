/* All outputs of the shown channel: by attention, by the convolution, and their difference; at the present alpha, and at
   many. And a picture of one's own as the input. */

import { decoded } from "./attention.js";
import { drawChart } from "./chart.js";
import { find } from "./dom.js";
import { attend, channelBound, convolution, padded } from "./layer.js";
import { formatted, largestGap, rangeOf } from "./numbers.js";
import { Panel } from "./panels.js";
import { greyPicture, signedPicture } from "./pictures.js";

const REST_MS = 60; // after the last change
const SLICE_MS = 25; // of the curve, before what was pressed meanwhile is answered
export const ALPHAS = Array.from({ length: 31 }, (_, step) => 2 ** (step / 2 - 5)).filter((alpha) =>
  alpha > 1 && alpha < 16 || Number.isInteger(Math.log2(alpha)));

/** A channel as attend() and convolution() read it; heads that bring their own values read a plane each. */
export function channelSubject(layer, channel, numbers = decoded(layer.planes[channel.planes])) {
  const size = layer.padded_size[0] * layer.padded_size[1];
  const planes = Array.from({ length: numbers.length / size }, (_, at) => numbers.subarray(at * size, (at + 1) * size));
  const taps = channel.projection ?? planes.map((_, head) => planes.map((_, other) => Number(other === head)));
  return { ...layer, planes, taps, bias: channel.bias, expected: decoded(channel.convolution) };
}

/** What is shown of all outputs once the viewer rests. */
export class OutputMaps {
  constructor() { this.panels = ["attention", "convolution", "difference"].map((name) => new Panel(find(`map-${name}`), 64)); }

  /** Maps of heads at their taps, all with one alpha; and the curve against alpha, where there is a bound. */
  draw(viewer) {
    const { layer, channel, subject } = viewer, one = new Set(layer.alpha).size === 1 || viewer.alpha !== null;
    const isWhole = Boolean(subject) && layer.at_taps && layer.centers.length === layer.heads;
    find("maps").hidden = !(isWhole && one);
    find("error").hidden = !(subject && layer.at_taps && channel.scale !== null);
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      if (!find("maps").hidden) this.paint(viewer);
      if (!find("error").hidden) this.extend(viewer);
    }, REST_MS);
    if (!find("error").hidden && subject.curve) drawChart(find("chart"), subject.curve, viewer.alphaOf(0), viewer.output);
  }

  paint({ subject, channel, look, alphaOf }) {
    const { expected, output_size: [, width] } = subject, range = rangeOf(expected);
    const attention = attend(subject, alphaOf(0)), gap = largestGap(attention, expected);
    const differences = attention.map((value, at) => value - expected[at]);
    [greyPicture(attention, width, range), greyPicture(expected, width, range), signedPicture(differences, width, gap, look.colours)]
      .forEach((picture, at) => this.panels[at].show(picture));
    find("maps-caption").textContent = `All outputs of channel ${channel.channel}: measured, the difference is at most ${formatted(gap)} `
      + "at this α.";
  }

  /** Computes the curve [alpha, measured, worst case] some alphas at a time, and shows what is known of it. */
  extend(viewer) {
    const { subject, channel } = viewer, curve = subject.curve ??= [], start = performance.now();
    while (curve.length < ALPHAS.length && performance.now() - start < SLICE_MS) {
      const alpha = ALPHAS[curve.length];
      curve.push([alpha, largestGap(attend(subject, alpha), subject.expected), channelBound(channel, alpha)]);
    }
    drawChart(find("chart"), curve, viewer.alphaOf(0), viewer.output);
    if (curve.length < ALPHAS.length) this.waiting = setTimeout(() => this.extend(viewer), 0);
  }
}

/** Puts a picture in place of a layer's input, each plane within the range it had, and computes what the convolution makes of it. */
export function takePicture(layer, { size: [rows, columns], rgb }) {
  const [height, width] = layer.input_size, at = Array.from({ length: height * width }, (_, number) => number);
  const planes = layer.channels[0].subject.planes.map((plane, band) => {
    const [low, high] = rangeOf(plane);
    return Float64Array.from(at, (number) => {
      const row = Math.floor(Math.floor(number / width) * rows / height), column = Math.floor(number % width * columns / width);
      return low + (high - low) * rgb[3 * (row * columns + column) + Math.min(band, 2)] / 255;
    });
  });
  const numbers = Float64Array.from(padded(planes, layer).flatMap((plane) => [...plane]));
  layer.own = true;
  for (const channel of layer.channels) {
    channel.subject = channelSubject(layer, channel, numbers);
    channel.subject.expected = convolution(channel.subject);
  }
}

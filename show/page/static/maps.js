/* All outputs of the shown channel: by attention, by the convolution, and their difference; and an image of one's own. */

import { attend, convolution, largestGap, padded } from "./layer.js";
import { formatted } from "./numbers.js";
import { Panel } from "./panels.js";
import { greyPicture, rangeOf, signedPicture, styleColours } from "./pictures.js";

const find = (id) => document.getElementById(id);
const REST_MS = 60; // after the last change

/** A channel as attend() and convolution() read it: its planes, and taps by head and plane. */
export function channelSubject(layer, channel) {
  const size = layer.padded_size[0] * layer.padded_size[1], [, columns] = layer.kernel_size;
  const count = channel.numbers.length / size;
  const planes = Array.from({ length: count }, (_, at) => channel.numbers.subarray(at * size, (at + 1) * size));
  const heads = layer.centers.map((_, head) => head), dilation = layer.kernel_size.map((length, axis) => stepOf(layer, length, axis));
  const taps = channel.projection ?? heads.map((head) => heads.map((other) => Number(other === head)));
  const places = heads.map((head) => [Math.floor(head / columns), head % columns]);
  return { ...layer, dilation, planes, taps, bias: channel.bias, places };
}

/** Pixels from a tap to the next along an axis. */
function stepOf({ centers }, length, axis) {
  const along = [...new Set(centers.map((center) => center[axis]))].sort((a, b) => a - b);
  return length > 1 ? along[1] - along[0] : 1;
}

export class OutputMaps {
  constructor() { this.panels = ["attention", "convolution", "difference"].map((name) => new Panel(find(`map-${name}`), 64)); }

  /** Draws the maps once the viewer rests: heads at their taps, all with one alpha. */
  draw(viewer) {
    const { layer, channel } = viewer, one = new Set(layer.alpha).size === 1 || viewer.alpha !== null;
    find("maps").hidden = !(channel && layer.at_taps && one && layer.centers.length === layer.heads);
    clearTimeout(this.waiting);
    if (!find("maps").hidden) this.waiting = setTimeout(() => this.paint(layer, channel, viewer.alphaOf(0)), REST_MS);
  }

  paint(layer, channel, alpha) {
    const attention = attend(channelSubject(layer, channel), alpha), convolved = channel.expected, [rows, columns] = layer.output_size;
    const range = rangeOf(convolved), gap = largestGap(attention, convolved), size = [rows, columns];
    const differences = attention.map((value, at) => value - convolved[at]);
    const pictures = [greyPicture(attention, columns, range), greyPicture(convolved, columns, range),
      signedPicture(differences, columns, gap, styleColours())];
    pictures.forEach((picture, at) => {
      this.panels[at].paint({ top: 0, left: 0, rows, columns }, picture);
      this.panels[at].mark({ pads: [0, 0, 0, 0], input_size: size, padded_size: size }, []);
    });
    find("maps-caption").textContent = `All outputs of channel ${channel.channel}: the difference is at most ${formatted(gap)} at this α.`;
  }
}

/** Puts a picture in place of a layer's input, each plane within the range it had, and computes what the convolution makes of it. */
export function takePicture(layer, { size: [rows, columns], rgb }) {
  const [height, width] = layer.input_size, at = Array.from({ length: height * width }, (_, number) => number);
  const planes = channelSubject(layer, layer.channels[0]).planes.map((plane, band) => {
    const [low, high] = rangeOf(plane);
    return Float64Array.from(at, (number) => {
      const row = Math.floor(Math.floor(number / width) * rows / height), column = Math.floor(number % width * columns / width);
      return low + (high - low) * rgb[3 * (row * columns + column) + Math.min(band, 2)] / 255;
    });
  });
  const numbers = Float64Array.from(padded(planes, layer).flatMap((plane) => [...plane]));
  layer.own = true;
  for (const channel of layer.channels) {
    channel.numbers = numbers;
    channel.expected = convolution(channelSubject(layer, channel));
    channel.curve = channel.curve.map(([alpha, , bound]) => [alpha, null, bound]); // what the library measured is of its image
  }
}

/** The picture of a layer's own planes, as panels paint it. */
export function ownPicture(layer) {
  const { planes } = channelSubject(layer, layer.channels[0]), width = layer.padded_size[1], ranges = planes.map(rangeOf);
  const bytes = new Uint8ClampedArray(4 * planes[0].length).fill(255);
  planes[0].forEach((_, at) => {
    for (let band = 0; band < 3; band++) {
      const plane = Math.min(band, planes.length - 1), [low, high] = ranges[plane];
      bytes[4 * at + band] = 255 * (planes[plane][at] - low) / (high - low || 1);
    }
  });
  return { bytes, width };
}

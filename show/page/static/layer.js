/* One output channel of a convolution and its attention, in double precision, as convert/spec.py, convert/engines/ and
   convert/bounds/tail.py compute them. The channel reads planes: the image's grey values, or its three colours. */

import { attended, axisAttention, axisProbabilities, headAttention, queryPosition, tailFraction } from "./attention.js";
import { largestOf, rangeOf } from "./numbers.js";

/** A reason, in one sentence, why something is not shown; the page lives on. */
export class Refusal extends Error {}

const UNIT = 2 ** -53;
const EXP_ULPS = 32; // as convert/bounds/rounding.py assumes of exp
const LARGEST_EXPONENT = 746; // beyond, exp is 0 in double precision

/** The pixel of the image that a padded one repeats, along an axis; −1 is a zero. */
const SOURCES = {
  zeros: (at, length) => at < 0 || at >= length ? -1 : at,
  replicate: (at, length) => Math.min(Math.max(at, 0), length - 1),
  circular: (at, length) => (at % length + length) % length,
  reflect: (at, length) => at < 0 ? -at : at >= length ? 2 * (length - 1) - at : at,
};
export const PADDING_MODES = Object.keys(SOURCES);

/** Where a kernel's heads look on an image of a size, with the fields of a layer of the report's page. */
export function geometryOf({ kernel_size, stride, dilation, padding, padding_mode }, input_size) {
  const pads = [0, 1].flatMap((axis) => padsAlong(padding, axis, dilation[axis] * (kernel_size[axis] - 1)));
  const padded_size = input_size.map((length, axis) => length + pads[2 * axis] + pads[2 * axis + 1]);
  const room = padded_size.map((length, axis) => length - dilation[axis] * (kernel_size[axis] - 1) - 1);
  const output_size = room.map((left, axis) => Math.floor(left / stride[axis]) + 1);
  const size = input_size.join(" × ");
  if (Math.min(...room) < 0) throw new Refusal(`The kernel does not fit on an image of ${size} pixels.`);
  const most = input_size.map((length) => ({ reflect: length - 1, circular: length })[padding_mode] ?? Infinity);
  if (pads.some((width, side) => width > most[side >> 1])) {
    throw new Refusal(`An image of ${size} pixels is too small for this padding (${padding_mode}).`);
  }
  const middle = kernel_size.map((length, axis) => dilation[axis] * Math.floor((length - 1) / 2));
  const centers = Array.from({ length: kernel_size[0] * kernel_size[1] }, (_, head) =>
    [Math.floor(head / kernel_size[1]), head % kernel_size[1]].map((at, axis) => dilation[axis] * at - middle[axis]));
  return { kernel_size, stride, pads, padding_mode, input_size, padded_size, output_size, middle, centers };
}

function padsAlong(padding, axis, span) {
  if (padding === "valid") return [0, 0];
  if (padding === "same") return [Math.floor(span / 2), span - Math.floor(span / 2)];
  return [padding[axis], padding[axis]].flat().slice(0, 2);
}

/** The planes over the padded input. */
export function padded(planes, { pads: [top, , left], input_size: [rows, columns], padded_size: [height, width], padding_mode }) {
  const source = SOURCES[padding_mode];
  return planes.map((plane) => {
    const wide = new Float64Array(height * width);
    for (let row = 0; row < height; row++) {
      const from = source(row - top, rows);
      for (let column = 0; from >= 0 && column < width; column++) {
        const at = source(column - left, columns);
        if (at >= 0) wide[row * width + column] = plane[from * columns + at];
      }
    }
    return wide;
  });
}

/** A layer before an image: its geometry, padded planes, and of one output channel the taps [head][plane] and the bias. */
export function subjectOf(layer, channel, spec, planes, size) {
  const geometry = geometryOf(spec, size);
  return { ...geometry, planes: padded(planes, geometry), taps: tapsOf(layer, channel, planes.length), bias: layer.bias?.[channel] ?? 0 };
}

/** The weights of a channel by head and plane: input channel c reads plane c modulo their number. */
function tapsOf({ weight, shape: [, width, rows, columns] }, channel, planes) {
  const heads = rows * columns, first = channel * width * heads;
  return Array.from({ length: heads }, (_, head) => {
    const sums = Array(planes).fill(0);
    for (let c = 0; c < width; c++) sums[c % planes] += weight[first + c * heads + head];
    return sums;
  });
}

/** The value v_h(k) of every key: the tap times the planes. */
function valuesOf({ planes }, tap) {
  const values = new Float64Array(planes[0].length);
  planes.forEach((plane, number) => {
    if (tap[number] === 0) return;
    for (let key = 0; key < values.length; key++) values[key] += tap[number] * plane[key];
  });
  return values;
}

/** Number of the key that a head's centre lies on, for a query. */
export function targetOf(subject, head, query) {
  const [row, column] = [0, 1].map((axis) => queryPosition(subject, query, axis) + subject.centers[head][axis]);
  return row * subject.padded_size[1] + column;
}

/** The value that each head's pixel has, and what it adds: the terms of the convolution at a query. */
export function termsAt(subject, query, taps = subject.taps) {
  return taps.map((tap, head) => {
    const key = targetOf(subject, head, query), pixel = subject.planes.map((plane) => plane[key]);
    return { pixel, tap, product: pixel.reduce((sum, value, number) => sum + tap[number] * value, 0) };
  });
}

/** The convolution of the padded planes at every query. */
export function convolution(subject, { planes = subject.planes, taps = subject.taps } = {}) {
  const [rows, columns] = subject.output_size, output = new Float64Array(rows * columns).fill(subject.bias);
  taps.forEach((tap, head) => planes.forEach((plane, number) => {
    if (tap[number] === 0) return;
    for (let row = 0, at = 0; row < rows; row++) {
      const start = targetOf(subject, head, [row, 0]);
      for (let column = 0; column < columns; column++, at++) output[at] += tap[number] * plane[start + column * subject.stride[1]];
    }
  }));
  return output;
}

/** A softmax without its zeros at both ends: {first, weights}. */
function bandOf(shares) {
  const first = shares.findIndex((share) => share > 0);
  return { first, weights: shares.subarray(first, shares.findLastIndex((share) => share > 0) + 1) };
}

/** Each head's softmax over all keys, for every query and head: the attention itself, one softmax an axis. */
export function attend(subject, alpha, { inner = false, taps = subject.taps } = {}) {
  const { output_size, padded_size: [height], centers } = subject, tables = [new Map(), new Map()];
  const tableOf = (center, axis) => {
    if (!tables[axis].has(center)) tables[axis].set(center, Array.from({ length: output_size[axis] }, (_, at) =>
      bandOf(axisAttention(subject, axis, queryPosition(subject, [at, at], axis) + center, alpha, inner))));
    return tables[axis].get(center);
  };
  const output = new Float64Array(output_size[0] * output_size[1]).fill(subject.bias);
  for (const center of new Set(centers.map(([row]) => row))) { // heads that share their rows' softmax are added up first
    const along = new Float64Array(height * output_size[1]);
    taps.forEach((tap, head) => {
      if (centers[head][0] !== center || tap.every((weight) => weight === 0)) return;
      mixColumns(along, valuesOf(subject, tap), height, tableOf(centers[head][1], 1));
    });
    mixRows(output, along, tableOf(center, 0));
  }
  return output;
}

/** along += V C^T for a table C of columns. */
function mixColumns(along, values, height, columns) {
  const width = values.length / height;
  for (let row = 0; row < height; row++) {
    columns.forEach(({ first, weights }, at) => {
      let sum = 0;
      for (let key = 0, from = row * width + first; key < weights.length; key++) sum += weights[key] * values[from + key];
      along[row * columns.length + at] += sum;
    });
  }
}

/** output += R along for a table R of rows. */
function mixRows(output, along, rows) {
  const count = output.length / rows.length;
  rows.forEach(({ first, weights }, row) => {
    for (let key = 0; key < weights.length; key++) {
      const from = (first + key) * count, to = row * count;
      for (let at = 0; at < count; at++) output[to + at] += weights[key] * along[from + at];
    }
  });
}

/** S_alpha X: every padded plane, blurred with one softmax an axis. */
export function blurred({ planes, padded_size }, alpha) {
  const [rows, columns] = padded_size.map((length) =>
    Array.from({ length }, (_, target) => bandOf(axisProbabilities(alpha, target, length))));
  return planes.map((plane) => {
    const along = new Float64Array(plane.length), smooth = new Float64Array(plane.length);
    mixColumns(along, plane, rows.length, columns);
    mixRows(smooth, along, rows);
    return smooth;
  });
}

/** What the certificate allows between attention and convolution on any image of this image's range: tau sum osc |W|. */
export function tailBound(subject, alpha) {
  const spread = subject.planes.map(rangeOf).map(([low, high]) => high - low);
  return tailFraction(alpha) * weighed(subject.taps, spread);
}

/** sum |W| r over heads and planes, of a number r for each plane. */
function weighed(taps, numbers) {
  return taps.flat().reduce((sum, weight, at) => sum + Math.abs(weight) * numbers[at % numbers.length], 0);
}

/** What rounding in this page can add, relative to sum |W| max |x|. A probability along an axis is a quotient; numerator
    and denominator each err by an exponent that was rounded twice and by exp, the denominator by its sum, too. Then come
    both axes' sums, the planes, the heads and the bias. The convolution has fewer steps: twice gamma covers both sides. */
export function roundingBound(subject) {
  const keys = Math.max(...subject.padded_size), parts = subject.taps.length + subject.planes.length + 3;
  const steps = 2 * (4 * (LARGEST_EXPONENT + EXP_ULPS) + keys + 2) + 2 * keys + parts;
  const largest = subject.planes.map(largestOf);
  const sum = weighed(subject.taps, largest) + Math.abs(subject.bias);
  return 2 * steps * UNIT / (1 - steps * UNIT) * sum;
}

/** Every head's attention for one query, with one alpha or each head its own; inner leaves out the padded keys. */
export function attentionAt(subject, query, alpha, { inner = false } = {}) {
  return subject.centers.map((_, head) => headAttention(subject, head, query, alpha[head] ?? alpha, inner));
}

/** What each head sees of each plane, sum_k p_h(k) plane(k); 0 where its tap is, unless all are asked for. */
export function seenBy({ planes, taps }, attentions, all = false) {
  return attentions.map((attention, head) =>
    planes.map((plane, number) => all || taps[head][number] !== 0 ? attended(attention, plane) : 0));
}

/** What each head adds: its tap times what it sees. */
export function addedBy(taps, seen) {
  return taps.map((tap, head) => tap.reduce((sum, weight, number) => sum + weight * seen[head][number], 0));
}

/** The value v_h(k) of one key. */
export function valueAt({ planes, taps, padded_size }, head, [row, column]) {
  return taps[head].reduce((sum, weight, number) => sum + weight * planes[number][row * padded_size[1] + column], 0);
}

/** What the certificate allows for a channel of the report's page; null where nothing is certified. */
export function channelBound({ scale, rounding }, alpha) {
  return scale === null || rounding === null ? null : tailFraction(alpha) * scale + rounding;
}

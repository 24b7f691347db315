/* A small denoising network with a spare head, as convert/layer/spare.py computes it, and the pages of stamps it cleans. */

import { productAttention } from "../../page/static/attention.js";
import { decodedTensor } from "../../page/static/files.js";
import { convolution, geometryOf, padded } from "../../page/static/layer.js";
import { randomNumbers } from "./examples.js";

const STRIDES = [1, 2, 2, 1, 1, 1];
const LOOKS = 3; // the convolution that the spare head stands in front of
export const TOKEN = 4; // pixels of a token's side
export const PITCH = 12; // from a stamp to the next
export const CELLS = [3, 4]; // stamps of a page
const SIDE = 8, BEFORE = 2; // pixels of a stamp, and in front of it

/** The network of a name among the article's tensors: its convolutions, and its spare head if it has one. */
export function networkOf(tensors, name) {
  const read = (key) => {
    const tensor = tensors[`${name}.${key}`];
    return tensor && { weight: decodedTensor(tensor), shape: tensor.shape };
  };
  const layers = STRIDES.map((stride, at) => ({ stride, ...read(`${at}.weight`), bias: read(`${at}.bias`).weight }));
  const projection = (key) => read(key) && { stride: 1, weight: read(key).weight, shape: [...read(key).shape, 1, 1] };
  const [query, key, value, out] = ["query", "key", "value", "out"].map(projection);
  return { layers, head: query ? { query: { ...query, bias: read("query_bias").weight }, key, value, out } : null };
}

/** A convolution of all planes, with "same" padding of zeros: {planes, size}. */
function convolve({ planes, size }, { stride, weight, shape: [outputs, inputs, ...kernel_size], bias = null }) {
  const padding = kernel_size.map((length) => (length - 1) / 2), taps = kernel_size[0] * kernel_size[1];
  const geometry = geometryOf({ kernel_size, stride: [stride, stride], dilation: [1, 1], padding, padding_mode: "zeros" }, size);
  const wide = padded(planes, geometry), found = Array.from({ length: outputs }, (_, out) => {
    const tapOf = (_, head) => Array.from({ length: inputs }, (_, input) => weight[(out * inputs + input) * taps + head]);
    return convolution({ ...geometry, planes: wide, taps: Array.from({ length: taps }, tapOf), bias: bias?.[out] ?? 0 });
  });
  return { planes: found, size: geometry.output_size };
}

/** Planes as vectors of the pixels, one behind the other. */
function vectors({ planes }) {
  const count = planes.length;
  return Float64Array.from({ length: count * planes[0].length }, (_, at) => planes[at % count][Math.floor(at / count)]);
}

/** The spare head: softmax over all pixels of (W_qry x + b) . (W_key x) / sqrt(width), [pixels][pixels], and what it adds to x. */
function attendTo(x, { query, key, value, out }) {
  const [asked, shown] = [query, key].map((projection) => vectors(convolve(x, projection))), { planes: values } = convolve(x, value);
  const width = query.shape[0], scaled = asked.map((number) => number / Math.sqrt(width));
  const shares = Array.from(x.planes[0], (_, pixel) => productAttention(scaled, pixel, shown, width));
  const read = values.map((plane) => Float64Array.from(shares, (row) => row.reduce((sum, share, at) => sum + share * plane[at], 0)));
  const added = convolve({ planes: read, size: x.size }, out).planes;
  return { shares, x: { ...x, planes: x.planes.map((plane, number) => plane.map((value, at) => value + added[number][at])) } };
}

/** Cleans a page {numbers, size}: the cleaned numbers, and the head's shares of each pixel. */
export function clean({ layers, head }, { numbers, size }) {
  let x = { planes: [numbers], size }, shares = null;
  layers.forEach((layer, at) => {
    if (at === LOOKS && head) ({ x, shares } = attendTo(x, head));
    x = convolve(x, layer);
    if (at < layers.length - 1) x.planes = x.planes.map((plane) => plane.map((value) => Math.max(value, 0)));
  });
  const cleaned = numbers.map((_, at) => {
    const row = Math.floor(at / size[1]), column = at % size[1];
    return x.planes[row % TOKEN * TOKEN + column % TOKEN][Math.floor(row / TOKEN) * x.size[1] + Math.floor(column / TOKEN)];
  });
  return { cleaned, shares };
}

/** A page of stamps of so many kinds, under noise, from a seed: {size, clean, noisy, kinds of the cells}. */
export function drawnPage(stamps, seed, kinds) {
  const random = randomNumbers(seed), images = decodedTensor(stamps), cells = CELLS[0] * CELLS[1];
  const chosen = shuffled(stamps.shape[0], random).slice(0, kinds), printed = shuffled(cells, random).map((at) => at % kinds);
  const size = CELLS.map((count) => count * PITCH), paper = new Float64Array(size[0] * size[1]).fill(-1);
  printed.forEach((kind, cell) => {
    const top = Math.floor(cell / CELLS[1]) * PITCH + BEFORE, left = cell % CELLS[1] * PITCH + BEFORE;
    for (let at = 0; at < SIDE * SIDE; at++) {
      paper[(top + Math.floor(at / SIDE)) * size[1] + left + at % SIDE] = images[chosen[kind] * SIDE * SIDE + at] / 8 - 1;
    }
  });
  const noise = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return { size, clean: paper, noisy: paper.map((value) => value + noise()), kinds: printed };
}

function shuffled(count, random) {
  return Array.from({ length: count }, (_, at) => [random(), at]).sort((a, b) => a[0] - b[0]).map(([, at]) => at);
}

/** Peak signal-to-noise ratio in dB, of values from −1 to 1. */
export function psnr(values, truth) {
  return 10 * Math.log10(4 * values.length / values.reduce((sum, value, at) => sum + (value - truth[at]) ** 2, 0));
}

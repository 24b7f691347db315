/* A small denoising network with a spare head, as convert/layer/spare.py computes it, and the pages of stamps it cleans. */

import { decodedTensor } from "../../page/static/files.js";
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
    return tensor && { numbers: decodedTensor(tensor), shape: tensor.shape };
  };
  const layers = STRIDES.map((stride, at) => ({ stride, weight: read(`${at}.weight`), bias: read(`${at}.bias`).numbers }));
  const head = Object.fromEntries(["query", "query_bias", "key", "value", "out"].map((key) => [key, read(key)]));
  return { layers, head: head.query ? head : null };
}

/** A convolution of all channels, with "same" padding of zeros for its odd kernel. */
function convolve({ numbers: x, channels, size: [rows, columns] }, { stride, weight: { numbers: w, shape: [outputs, , side] }, bias }) {
  const size = [rows, columns].map((length) => Math.ceil(length / stride)), reach = (side - 1) / 2;
  const y = new Float64Array(outputs * size[0] * size[1]);
  for (let out = 0, at = 0; out < outputs; out++) {
    for (let row = 0; row < size[0]; row++) {
      for (let column = 0; column < size[1]; column++, at++) {
        let sum = bias[out];
        for (let tap = 0; tap < side * side; tap++) {
          const r = row * stride + Math.floor(tap / side) - reach, c = column * stride + tap % side - reach;
          if (r < 0 || c < 0 || r >= rows || c >= columns) continue;
          for (let channel = 0; channel < channels; channel++) {
            sum += w[(out * channels + channel) * side * side + tap] * x[(channel * rows + r) * columns + c];
          }
        }
        y[at] = sum;
      }
    }
  }
  return { numbers: y, channels: outputs, size };
}

function relu(x) { return { ...x, numbers: x.numbers.map((value) => Math.max(value, 0)) }; }

/** W X (+ b) for the pixels X of a map: [outputs, pixels]. */
function projected({ numbers, channels, size }, { numbers: w, shape: [outputs] }, bias = null) {
  const pixels = size[0] * size[1], found = new Float64Array(outputs * pixels);
  for (let out = 0; out < outputs; out++) {
    for (let pixel = 0; pixel < pixels; pixel++) {
      let sum = bias ? bias.numbers[out] : 0;
      for (let channel = 0; channel < channels; channel++) sum += w[out * channels + channel] * numbers[channel * pixels + pixel];
      found[out * pixels + pixel] = sum;
    }
  }
  return found;
}

/** The spare head: softmax over all pixels of (W_qry x + b) . (W_key x) / sqrt(width), [pixels, pixels], and what it adds to x. */
function attendTo(x, { query, query_bias, key, value, out }) {
  const pixels = x.size[0] * x.size[1], width = query.shape[0], shares = new Float64Array(pixels * pixels);
  const [asked, shown, values] = [projected(x, query, query_bias), projected(x, key), projected(x, value)];
  const read = new Float64Array(width * pixels);
  for (let q = 0; q < pixels; q++) {
    const row = shares.subarray(q * pixels, (q + 1) * pixels);
    for (let k = 0; k < pixels; k++) {
      for (let part = 0; part < width; part++) row[k] += asked[part * pixels + q] * shown[part * pixels + k];
      row[k] /= Math.sqrt(width);
    }
    const highest = Math.max(...row), total = row.reduce((sum, score) => sum + Math.exp(score - highest), 0);
    row.forEach((score, k) => { row[k] = Math.exp(score - highest) / total; });
    for (let part = 0; part < width; part++) row.forEach((share, k) => { read[part * pixels + q] += share * values[part * pixels + k]; });
  }
  const added = projected({ numbers: read, channels: width, size: x.size }, out);
  return { shares, x: { ...x, numbers: x.numbers.map((number, at) => number + added[at]) } };
}

/** Cleans a page {numbers, size}: the cleaned numbers, and the head's shares. */
export function clean({ layers, head }, { numbers, size }) {
  let x = { numbers, channels: 1, size }, shares = null;
  layers.forEach((layer, at) => {
    if (at === LOOKS && head) ({ x, shares } = attendTo(x, head));
    x = convolve(x, layer);
    if (at < layers.length - 1) x = relu(x);
  });
  const [rows, columns] = x.size, cleaned = numbers.map((_, at) => {
    const row = Math.floor(at / size[1]), column = at % size[1], channel = row % TOKEN * TOKEN + column % TOKEN;
    return x.numbers[(channel * rows + Math.floor(row / TOKEN)) * columns + Math.floor(column / TOKEN)];
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

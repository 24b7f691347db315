/* The layers and images that the article brings: kernels that everyone knows, drawn images, and a photograph. */

import { decodedBytes } from "../../page/static/attention.js";

const SIDE = 40; // pixels of a drawn image

function kernel(label, ...weight) {
  const side = Math.sqrt(weight.length);
  return { label, weight, shape: [1, 1, side, side], bias: null };
}

export const LAYERS = Object.entries({
  emboss: kernel("emboss, 3 × 3", -2, -1, 0, -1, 1, 1, 0, 1, 2),
  sobel: kernel("Sobel, 3 × 3", -1, 0, 1, -2, 0, 2, -1, 0, 1),
  sharpen: kernel("sharpen, 3 × 3", 0, -1, 0, -1, 5, -1, 0, -1, 0),
  box: kernel("box blur, 3 × 3", ...Array(9).fill(1 / 9)),
  log: kernel("edges, 5 × 5", 0, 0, -1, 0, 0, 0, -1, -2, -1, 0, -1, -2, 16, -2, -1, 0, -1, -2, -1, 0, 0, 0, -1, 0, 0),
});

/** A stream of numbers from 0 to 1 that a seed repeats (mulberry32). */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = state + 0x6d2b79f5 >>> 0;
    let mixed = Math.imul(state ^ state >>> 15, 1 | state);
    mixed = mixed + Math.imul(mixed ^ mixed >>> 7, 61 | mixed) ^ mixed;
    return ((mixed ^ mixed >>> 14) >>> 0) / 2 ** 32;
  };
}

/** The images by name: {label, size, rgb}. */
export function drawnImages({ cat: { shape, data } }) {
  const random = randomNumbers(1), grey = (label, value) => {
    const pixels = Array.from({ length: SIDE * SIDE }, (_, at) => value(Math.floor(at / SIDE), at % SIDE));
    return { label, size: [SIDE, SIDE], rgb: Uint8ClampedArray.from(pixels.flatMap((level) => [level, level, level])) };
  };
  const cat = { label: "a cat", size: shape.slice(0, 2), rgb: decodedBytes(data) };
  const drawn = { dot: grey("one bright pixel", (row, column) => row === 14 && column === 17 ? 255 : 0),
    board: grey("a checkerboard", (row, column) => (row + column) % 2 ? 255 : 0),
    noise: grey("noise", () => 256 * random()) };
  return Object.entries({ cat, ...drawn });
}

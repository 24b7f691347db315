/* Pictures of numbers, {bytes, width}, in the colours of the style. */

import { colours } from "./canvas.js";

/** Numbers as grey values from the lowest to the highest of a range. */
export function greyPicture(values, width, [low, high]) {
  const bytes = new Uint8ClampedArray(4 * values.length).fill(255);
  values.forEach((value, at) => bytes.fill(255 * (value - low) / (high - low || 1), 4 * at, 4 * at + 3));
  return { bytes, width };
}

/** Numbers as colours: 0 is the paper, the largest in size has the colour of its sign. */
export function signedPicture(values, width, largest, { paper, query, key }) {
  const bytes = new Uint8ClampedArray(4 * values.length).fill(255);
  values.forEach((value, at) => {
    const share = Math.min(Math.sqrt(Math.abs(value) / (largest || 1)), 1), colour = value < 0 ? query : key;
    for (let band = 0; band < 3; band++) bytes[4 * at + band] = paper[band] + share * (colour[band] - paper[band]);
  });
  return { bytes, width };
}

/** The style's colours as red, green and blue, which canvases need. */
export function styleColours() {
  const bands = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const names = ["paper", "ink", "soft", "rule", "faint", "query", "key"];
  return Object.fromEntries(names.map((name) => [name, bands(colours(`--${name}`)[0])]));
}

export function css([red, green, blue], opacity = 1) { return `rgb(${red} ${green} ${blue} / ${opacity})`; }

export function rangeOf(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

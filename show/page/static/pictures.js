/* Pictures of numbers, {bytes, width}, in the colours of the style. */

import { style } from "./dom.js";

export const FAINT = 0.2; // how much of the input is seen below attention

/** A picture of pixels whose red, green and blue, from 0 to 255, are value(pixel, band). */
function painted(count, width, value) {
  const bytes = new Uint8ClampedArray(4 * count).fill(255);
  for (let at = 0; at < count; at++) {
    for (let band = 0; band < 3; band++) bytes[4 * at + band] = value(at, band);
  }
  return { bytes, width };
}

/** Numbers as grey values from the lowest to the highest of a range. */
export function greyPicture(values, width, range) { return colourPicture([values], width, [range]); }

/** One plane of numbers in grey, or three in colour, each from the lowest to the highest of its range. */
export function colourPicture(planes, width, ranges = planes.map(() => [0, 1])) {
  return painted(planes[0].length, width, (at, band) => {
    const plane = Math.min(band, planes.length - 1), [low, high] = ranges[plane];
    return 255 * (planes[plane][at] - low) / (high - low || 1);
  });
}

/** Numbers as colours: 0 is the paper, the largest in size has the colour of its sign. */
export function signedPicture(values, width, largest, { paper, query, key }) {
  return painted(values.length, width, (at, band) => {
    const share = Math.min(Math.sqrt(Math.abs(values[at]) / (largest || 1)), 1);
    return paper[band] + share * ((values[at] < 0 ? query : key)[band] - paper[band]);
  });
}

/** Shares of the largest in the ramp's colours, over a picture that shows the more, the less a pixel has. */
export function rampPicture(shares, width, largest, ramp, { bytes } = {}, faint = 0) {
  return painted(shares.length, width, (at, band) => {
    const share = shares[at] / (largest || 1), below = faint * (1 - share), colour = ramp[3 * Math.round(255 * share) + band];
    return below ? below * bytes[4 * at + band] + (1 - below) * colour : colour;
  });
}

/** The picture under a colour, of which it lets a share through. */
export function faded({ bytes, width }, colour, share = FAINT) {
  return painted(bytes.length / 4, width, (at, band) => share * bytes[4 * at + band] + (1 - share) * colour[band]);
}

/** Red, green and blue of a colour of the style. */
function bandsOf(hex) { return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)); }

/** The style's colours as red, green and blue, which canvases need. */
export function styleColours() {
  const names = ["paper", "ink", "soft", "rule", "faint", "query", "key"];
  return Object.fromEntries(names.map((name) => [name, bandsOf(style(`--${name}`)[0])]));
}

/** 256 colours from the style's ramp: red, green, blue of each. */
export function readRamp() {
  const stops = style("--ramp").map(bandsOf), ramp = new Uint8Array(256 * 3);
  for (let step = 0; step < 256; step++) {
    const at = step / 255 * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
    stops[low].forEach((value, part) => { ramp[3 * step + part] = value + (at - low) * (stops[low + 1][part] - value); });
  }
  return ramp;
}

/** A picture as heads are shown over it: itself, and as it is where they do not look. */
export function lookOf(picture, ramp = readRamp()) {
  return { ramp, picture, faint: faded(picture, ramp.subarray(0, 3)), colours: styleColours() };
}

export function css([red, green, blue], opacity = 1) { return `rgb(${red} ${green} ${blue} / ${opacity})`; }

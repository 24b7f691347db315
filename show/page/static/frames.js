/* The packed numbers of the film, and what belongs to one frame. */

import { decodedBytes } from "./attention.js";

export const film = JSON.parse(document.getElementById("data").textContent);

const ELLIPSE = 5; // row and column of the centre; the covariance's rows, both, columns
const ellipses = new Float32Array(decodedBytes(film.ellipses).buffer);
const maps = decodedBytes(film.maps);

/** A head's numbers in a frame: [row, column, rows, both, columns], in pixels from the query. */
export function ellipseOf(frame, layer, head) {
  const start = ((frame * film.layers + layer) * film.heads + head) * ELLIPSE;
  return ellipses.subarray(start, start + ELLIPSE);
}

/** A head's attention in a frame, row by row, in 255ths. */
export function mapOf(frame, layer, head) {
  const pixels = film.rows * film.columns;
  const start = ((frame * film.layers + layer) * film.heads + head) * pixels;
  return maps.subarray(start, start + pixels);
}

const HALF = Math.sqrt(2 * Math.log(2)); // a Gaussian has half of its mass within so many standard deviations

/** Half axes and angle of the ellipse around half of a Gaussian's mass, in pixels; the angle turns columns to rows. */
export function axesOf([, , rows, both, columns]) {
  const mean = (rows + columns) / 2, apart = Math.hypot((columns - rows) / 2, both);
  const angle = Math.atan2(2 * both, columns - rows) / 2;
  return [HALF * Math.sqrt(Math.max(mean + apart, 0)), HALF * Math.sqrt(Math.max(mean - apart, 0)), angle];
}

// The packed numbers of the film, and what belongs to one frame.

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

// Drawing: the ellipses of a layer, the maps of its heads, the curve of accuracies.

import { cleared } from "./canvas.js";
import { ellipseOf, film, mapOf } from "./frames.js";

const HALF = Math.sqrt(2 * Math.log(2)); // a Gaussian has half of its mass within so many standard deviations
const EDGE = 6; // from the edge of a square, in pixels of the screen, to the marks of heads that look beyond it

/** Half axes and angle of the ellipse around half of a Gaussian's mass, in pixels; the angle turns columns to rows. */
export function axesOf([, , rows, both, columns]) {
  const mean = (rows + columns) / 2, apart = Math.hypot((columns - rows) / 2, both);
  const angle = Math.atan2(2 * both, columns - rows) / 2;
  return [HALF * Math.sqrt(Math.max(mean + apart, 0)), HALF * Math.sqrt(Math.max(mean - apart, 0)), angle];
}

export function drawLayer(canvas, frame, layer, look) {
  const context = cleared(canvas), pixel = canvas.clientWidth / film.columns;
  const [row, column] = film.query;
  context.strokeStyle = look.rule;
  context.lineWidth = 1;
  context.beginPath();
  for (let line = 1; line < film.columns; line++) { context.moveTo(line * pixel, 0); context.lineTo(line * pixel, film.rows * pixel); }
  for (let line = 1; line < film.rows; line++) { context.moveTo(0, line * pixel); context.lineTo(film.columns * pixel, line * pixel); }
  context.stroke();
  if (film.padding) {
    context.strokeStyle = look.soft;
    context.setLineDash([3, 3]);
    context.strokeRect(film.padding * pixel, film.padding * pixel, (film.columns - 2 * film.padding) * pixel,
                       (film.rows - 2 * film.padding) * pixel);
    context.setLineDash([]);
  }
  context.strokeStyle = look.query;
  context.lineWidth = 2;
  context.strokeRect(column * pixel, row * pixel, pixel, pixel);
  for (let head = 0; head < film.heads; head++) {
    const ellipse = ellipseOf(frame, layer, head), [long, short, angle] = axesOf(ellipse);
    const x = (column + 0.5 + ellipse[1]) * pixel, y = (row + 0.5 + ellipse[0]) * pixel;
    context.strokeStyle = context.fillStyle = look.heads[head % look.heads.length];
    context.lineWidth = 1.5;
    context.beginPath();
    context.ellipse(x, y, long * pixel, short * pixel, angle, 0, 2 * Math.PI);
    context.globalAlpha = 0.18;
    context.fill();
    context.globalAlpha = 1;
    context.stroke();
    drawMean(context, x, y, canvas.clientWidth, canvas.clientHeight);
  }
}

/** A dot where a head looks on average, or, if that is beyond the square, a triangle at its edge that points there. */
function drawMean(context, x, y, width, height) {
  const nearX = Math.min(Math.max(x, EDGE), width - EDGE), nearY = Math.min(Math.max(y, EDGE), height - EDGE);
  context.beginPath();
  if (x < 0 || x > width || y < 0 || y > height) {
    const turn = Math.atan2(y - nearY, x - nearX);
    for (const corner of [0, 2.4, -2.4]) {
      context.lineTo(nearX + EDGE * Math.cos(turn + corner), nearY + EDGE * Math.sin(turn + corner));
    }
  } else {
    context.arc(x, y, 2.5, 0, 2 * Math.PI);
  }
  context.fill();
}

/** 256 colours between those of the ramp, as bytes. */
export function table(ramp) {
  const stops = ramp.map(colour => [1, 3, 5].map(start => parseInt(colour.slice(start, start + 2), 16)));
  const found = new Uint8ClampedArray(256 * 4);
  for (let level = 0; level < 256; level++) {
    const place = level / 255 * (stops.length - 1), first = Math.min(Math.floor(place), stops.length - 2);
    for (let part = 0; part < 3; part++) {
      found[4 * level + part] = stops[first][part] + (place - first) * (stops[first + 1][part] - stops[first][part]);
    }
    found[4 * level + 3] = 255;
  }
  return found;
}

export function drawMap(canvas, frame, layer, head, look) {
  const values = mapOf(frame, layer, head), largest = Math.max(...values, 1);
  if (canvas.width !== film.columns) { canvas.width = film.columns; canvas.height = film.rows; }
  const context = canvas.getContext("2d"), image = context.createImageData(film.columns, film.rows);
  values.forEach((value, pixel) => {
    const level = Math.round(255 * value / largest);
    image.data.set(look.table.subarray(4 * level, 4 * level + 4), 4 * pixel);
  });
  context.putImageData(image, 0, 0);
}

export function drawCurve(canvas, epoch, look) {
  const context = cleared(canvas), width = canvas.clientWidth, height = canvas.clientHeight, left = 40;
  const last = Math.max(film.accuracies.length - 1, 1);
  const x = value => left + (width - left - 6) * value / last, y = value => 6 + (height - 26) * (1 - value);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = look.soft;
  context.strokeStyle = look.rule;
  context.lineWidth = 1;
  for (const level of [0, 0.5, 1]) {
    context.beginPath(); context.moveTo(left, y(level)); context.lineTo(width, y(level)); context.stroke();
    context.fillText(`${100 * level} %`, 0, y(level) + 4);
  }
  context.fillText("0", left, height - 4);
  context.textAlign = "right";
  context.fillText(`epoch ${last}`, width - 6, height - 4);
  context.textAlign = "left";
  context.strokeStyle = look.key;
  context.lineWidth = 1.5;
  context.beginPath();
  film.accuracies.forEach((value, number) => context.lineTo(x(number), y(value)));
  context.stroke();
  context.fillStyle = look.query;
  context.beginPath();
  context.arc(x(epoch), y(film.accuracies[epoch]), 4, 0, 2 * Math.PI);
  context.fill();
}

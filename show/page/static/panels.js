/* Panels: a canvas with one pixel a pixel, and marks over it in the same coordinates. */

const SVG = "http://www.w3.org/2000/svg";
export const FAINT = 0.2; // how much of the input is seen below attention
const BESIDE = 7; // pixels that panels of heads show beside the outermost centres ...
const SMALL = 24; // ... of a padded input that is longer than this
const VISIBLE = 1 / 512; // of the highest attention: less has the colour of none

export function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** 256 colours from the style's ramp: red, green, blue of each. */
export function readRamp() {
  const stops = getComputedStyle(document.documentElement).getPropertyValue("--ramp").trim().split(/\s+/)
    .map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const ramp = new Uint8Array(256 * 3);
  for (let step = 0; step < 256; step++) {
    const at = step / 255 * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
    stops[low].forEach((value, part) => { ramp[3 * step + part] = value + (at - low) * (stops[low + 1][part] - value); });
  }
  return ramp;
}

/** A picture {bytes, width} of a layer's padded input, red, green, blue and opacity of each pixel. */
export function inputPicture(layer) {
  const { data, channels } = layer.picture, values = atob(data), [rows, width] = layer.padded_size;
  const bytes = new Uint8ClampedArray(4 * rows * width).fill(255);
  for (let pixel = 0; pixel < rows * width; pixel++) {
    for (let part = 0; part < 3; part++) {
      bytes[4 * pixel + part] = values.charCodeAt(pixel * channels + Math.min(part, channels - 1));
    }
  }
  return { bytes, width };
}

/** The picture under a colour, of which it lets a share through. */
export function faded({ bytes, width }, colour, share) {
  return { width, bytes: bytes.map((value, at) => at % 4 === 3 ? 255 : share * value + (1 - share) * colour[at % 4]) };
}

/** A panel over a window {top, left, rows, columns} of the padded input; padding gets so many lines across. */
export class Panel {
  constructor(host, lines) {
    this.host = host;
    this.lines = lines;
    this.canvas = document.createElement("canvas");
    this.marks = element("svg", { preserveAspectRatio: "none" });
    this.hatch = element("pattern", { id: `hatch-${Panel.made = (Panel.made ?? 0) + 1}`, width: 1, height: 1,
      patternUnits: "userSpaceOnUse" }, element("line", { x1: 0.5, x2: 0.5, y1: 0, y2: 1 }));
    host.replaceChildren(this.canvas, this.marks);
  }

  /** Paints the window of a picture {bytes, width} of the padded input; over(bytes) may repaint some of it. */
  paint(window, picture, over = () => {}) {
    this.window = window;
    const { top, left, rows, columns } = window;
    if (this.canvas.width !== columns || this.canvas.height !== rows) {
      Object.assign(this.canvas, { width: columns, height: rows });
      this.host.style.aspectRatio = `${columns} / ${rows}`;
    }
    const context = this.canvas.getContext("2d"), image = context.createImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      const from = 4 * ((top + row) * picture.width + left);
      image.data.set(picture.bytes.subarray(from, from + 4 * columns), 4 * row * columns);
    }
    over(image.data);
    context.putImageData(image, 0, 0);
    this.marks.setAttribute("viewBox", `${left} ${top} ${columns} ${rows}`);
    this.hatch.setAttribute("patternTransform", `rotate(45) scale(${columns / this.lines})`);
  }

  /** Draws the padding, hatched or, where it is no key, blank, the input's border, and boxes [class, row, column, rows, columns]. */
  mark(layer, boxes, blank = false) {
    const [top, , left] = layer.pads, [rows, columns] = layer.input_size, [height, width] = layer.padded_size;
    const outside = `M0 0H${width}V${height}H0Z M${left} ${top}v${rows}h${columns}v${-rows}Z`;
    const parts = [this.hatch];
    if (height > rows || width > columns) {
      parts.push(element("path", { fill: blank ? "var(--paper)" : `url(#${this.hatch.id})`, d: outside }),
        element("rect", { class: "border", x: left, y: top, width: columns, height: rows }));
    }
    for (const [name, y, x, high, wide] of boxes) {
      parts.push(element("rect", { class: name, x, y, width: wide, height: high }));
    }
    this.marks.replaceChildren(...parts);
  }

  /** The pixel of the padded input under the pointer, as [row, column]. */
  pixelAt(event) {
    const box = this.canvas.getBoundingClientRect(), { top, left, rows, columns } = this.window;
    const inside = (value, length) => Math.min(Math.max(Math.floor(value), 0), length - 1);
    return [top + inside((event.clientY - box.top) / box.height * rows, rows),
      left + inside((event.clientX - box.left) / box.width * columns, columns)];
  }
}

/** Colours the pixels of the window whose attention can be told from none. */
export function paintAttention(bytes, { window, picture, ramp }, { rows, columns }, highest) {
  const broadest = Math.max(...columns);
  for (let row = 0; row < window.rows; row++) {
    if (rows[window.top + row] * broadest < VISIBLE * highest) continue;
    for (let column = 0; column < window.columns; column++) {
      const share = rows[window.top + row] * columns[window.left + column] / highest;
      if (share < VISIBLE) continue;
      const colour = 3 * Math.round(share * 255), below = FAINT * (1 - share);
      const at = 4 * (row * window.columns + column), from = 4 * ((window.top + row) * picture.width + window.left + column);
      for (let part = 0; part < 3; part++) {
        bytes[at + part] = below * picture.bytes[from + part] + (1 - below) * ramp[colour + part];
      }
    }
  }
}

/** The colours of attention, from none to the highest. */
export function drawScale(canvas, ramp) {
  const context = canvas.getContext("2d"), strip = context.createImageData(128, 1);
  for (let at = 0; at < 128; at++) strip.data.set([...ramp.subarray(6 * at, 6 * at + 3), 255], 4 * at);
  context.putImageData(strip, 0, 0);
}

/** The window of the padded input around a query's mark that panels of heads show, or all of it. */
export function windowAround({ padded_size, centers }, mark, all = false) {
  const [[top, rows], [left, columns]] = mark.map((place, axis) => {
    const farthest = Math.max(...centers.map((center) => Math.abs(center[axis])));
    return interval(place, all || padded_size[axis] <= SMALL ? Infinity : Math.ceil(farthest) + BESIDE, padded_size[axis]);
  });
  return { top, left, rows, columns };
}

/** An interval of at most 2 * reach + 1 pixels around the middle, moved to lie within 0 ... length. */
function interval(middle, reach, length) {
  const width = Math.min(2 * reach + 1, length);
  return [width === length ? 0 : Math.min(Math.max(middle - reach, 0), length - width), width];
}

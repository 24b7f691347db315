/* Panels: a canvas with one pixel a pixel, and marks over it in the same coordinates. */

import { highestOf } from "./attention.js";
import { drawn, made } from "./dom.js";
import { FAINT } from "./pictures.js";

const BESIDE = 7; // pixels that panels of heads show beside the outermost centres ...
const SMALL = 24; // ... of a padded input that is longer than this
const VISIBLE = 1 / 512; // of the highest attention: less has the colour of none
const MANY = 16; // heads whose panels are too small for words

/** A panel over a window {top, left, rows, columns} of the padded input; padding gets so many lines across. */
export class Panel {
  constructor(host, lines) {
    Object.assign(this, { host, lines, canvas: made("canvas"), marks: drawn("svg", { preserveAspectRatio: "none" }) });
    this.hatch = drawn("pattern", { id: `hatch-${Panel.made = (Panel.made ?? 0) + 1}`, width: 1, height: 1,
      patternUnits: "userSpaceOnUse" }, drawn("line", { x1: 0.5, x2: 0.5, y1: 0, y2: 1 }));
    host.replaceChildren(this.canvas, this.marks);
  }

  /** Paints the window of a picture {bytes, width} of the padded input; over(bytes) may repaint some of it. */
  paint(window, picture, over = () => {}) {
    const { top, left, rows, columns } = window;
    this.view(window);
    const context = this.canvas.getContext("2d"), image = context.createImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      const from = 4 * ((top + row) * picture.width + left);
      image.data.set(picture.bytes.subarray(from, from + 4 * columns), 4 * row * columns);
    }
    over(image.data);
    context.putImageData(image, 0, 0);
  }

  /** Shows a window of the padded input. */
  view(window) {
    const { top, left, rows, columns } = this.window = window;
    if (this.canvas.width !== columns || this.canvas.height !== rows) {
      Object.assign(this.canvas, { width: columns, height: rows });
      this.host.style.aspectRatio = `${columns} / ${rows}`;
    }
    this.marks.setAttribute("viewBox", `${left} ${top} ${columns} ${rows}`);
    this.hatch.setAttribute("patternTransform", `rotate(45) scale(${columns / this.lines})`);
  }

  /** Paints a whole picture that has no padding, and boxes. */
  show(picture, boxes = []) {
    const size = [picture.bytes.length / 4 / picture.width, picture.width];
    this.paint({ top: 0, left: 0, rows: size[0], columns: size[1] }, picture);
    this.mark({ pads: [0, 0, 0, 0], input_size: size, padded_size: size }, boxes);
  }

  /** Draws the padding, hatched or, where it is no key, blank, the input's border, and boxes [class, row, column, rows, columns]. */
  mark(layer, boxes, blank = false) {
    const [top, , left] = layer.pads, [rows, columns] = layer.input_size, [height, width] = layer.padded_size;
    const outside = `M0 0H${width}V${height}H0Z M${left} ${top}v${rows}h${columns}v${-rows}Z`;
    const parts = [this.hatch];
    if (height > rows || width > columns) {
      parts.push(drawn("path", { fill: blank ? "var(--paper)" : `url(#${this.hatch.id})`, d: outside }),
        drawn("rect", { class: "border", x: left, y: top, width: columns, height: rows }));
    }
    for (const [name, y, x, height = 1, width = 1] of boxes) parts.push(drawn("rect", { class: name, x, y, width, height }));
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
function paintAttention(bytes, window, { picture, ramp }, { rows, columns }, highest) {
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

/** A panel for each head, as its tap lies in the kernel. */
export class HeadPanels {
  /** With pressed(head) panels are buttons; pointed(head, key) is called with the key under the pointer, or null. */
  constructor(host, { pressed = null, pointed }) { Object.assign(this, { host, pressed, pointed, heads: [] }); }

  make({ centers: { length }, kernel_size: [, columns] }) {
    const many = length > MANY;
    this.heads = Array.from({ length }, (_, head) => {
      const host = made("span", "panel"), caption = made("figcaption"), panel = new Panel(host, many ? 12 : 24);
      const frame = this.pressed ? made("button", "", host) : host;
      if (this.pressed) Object.assign(frame, { type: "button", onclick: () => this.pressed(head) });
      else frame.setAttribute("role", "img");
      frame.addEventListener("pointermove", (event) => this.pointed(head, panel.pixelAt(event)));
      frame.addEventListener("focus", () => this.pointed(head));
      for (const type of ["pointerleave", "blur"]) frame.addEventListener(type, () => this.pointed(null));
      return { frame, caption, panel, figure: made("figure", "", frame, ...(many ? [] : [caption])) };
    });
    this.columns = columns;
    this.host.replaceChildren(...this.heads.map(({ figure }) => figure));
    this.host.style.gridTemplateColumns = `repeat(${columns}, minmax(0, ${columns < 3 ? "240px" : "1fr"}))`;
    this.host.classList.toggle("many", many);
  }

  /** Draws each head's attention, and captions {words, parts, off} of them; returns the highest probability. */
  draw(layer, attentions, mark, look, captions, window = windowAround(layer, mark)) {
    if (this.heads.length !== attentions.length || this.columns !== layer.kernel_size[1]) this.make(layer);
    const highest = highestOf(attentions);
    this.heads.forEach(({ frame, caption, panel }, head) => {
      const { words, parts, off } = captions[head];
      panel.paint(window, look.faint, (bytes) => paintAttention(bytes, window, look, attentions[head], highest));
      panel.mark(layer, [["query", ...mark]]);
      caption.replaceChildren(...parts);
      frame.setAttribute("aria-label", words);
      if (this.pressed) frame.setAttribute("aria-pressed", String(off));
    });
    return highest;
  }
}

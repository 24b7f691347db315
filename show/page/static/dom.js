/* Elements of the document, canvases, colours of the style, and how things are dragged. */

const SVG = "http://www.w3.org/2000/svg";
const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function find(id) { return document.getElementById(id); }

/** An element of a class, with children. */
export function made(name, className = "", ...children) {
  const element = document.createElement(name);
  element.className = className;
  element.append(...children);
  return element;
}

/** An element of a drawing. */
export function drawn(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** The words of a property of the style, such as colours. */
export function style(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim().split(/\s+/); }

/** Calls back when the style's colours are others: in the dark, and on paper. */
export function onLook(changed) {
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", changed);
}

/** A canvas' context in CSS pixels, cleared; the canvas is made as fine as the screen. */
export function cleared(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return context;
}

/** Dragging by pointer, to(event), and by the arrow keys, by([rows, columns]); done(now) ends a drag, or follows a key. */
export function dragged(host, to, by = null, done = () => {}) {
  host.addEventListener("pointerdown", (event) => { host.setPointerCapture(event.pointerId); to(event); });
  host.addEventListener("pointermove", (event) => { if (host.hasPointerCapture(event.pointerId)) to(event); });
  host.addEventListener("pointerup", () => done(true));
  if (by) host.addEventListener("keydown", (event) => {
    const step = KEYS[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    by(step.map((length) => length * (event.shiftKey ? 5 : 1)));
    done(false);
  });
}

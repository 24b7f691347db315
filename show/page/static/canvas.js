/* Canvases, and the colours of the style. */

export function colours(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim().split(/\s+/);
}

/** A canvas' context in CSS pixels, cleared; the canvas is made as fine as the screen. */
export function cleared(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return context;
}

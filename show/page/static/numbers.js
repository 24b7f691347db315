/* Numbers in words and in blocks. */

/** 9.5 × 10⁻⁷ for small and large numbers, plain decimals between. */
export function formatted(value, digits = 3) {
  if (value === null || !Number.isFinite(value)) return "unknown";
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(digits)), power = Math.floor(Math.log10(Math.abs(rounded)));
  if (power >= digits && power < 6) return value.toFixed(0).replace("-", "−");
  if (power >= -3 && power < digits) return rounded.toPrecision(digits).replace("-", "−");
  return `${(rounded / 10 ** power).toFixed(digits - 1).replace("-", "−")} × 10${superscript(power)}`;
}

export function superscript(power) {
  return String(power).replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);
}

export function block(name, ...children) {
  const host = document.createElement("div");
  host.className = name;
  host.append(...children);
  return host;
}

/** A number with its name above it. */
export function numberBlock(name, value, digits) {
  const label = document.createElement("span"), number = document.createElement("span");
  [label.className, label.textContent] = ["name", name];
  [number.className, number.textContent] = ["value", formatted(value, digits)];
  return block("", label, number);
}

/** Whether a bound is below the largest output, as convert/certificate/layer.py says. */
export function isUseful(bound, outputs) {
  return bound <= outputs.reduce((largest, output) => Math.max(largest, Math.abs(output)), 0);
}

export function signBlock(sign) { return block("sign", sign); }

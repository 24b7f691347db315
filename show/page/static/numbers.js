/* Numbers: in words, and the largest of many. */

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

/** The lowest and the highest of some numbers. */
export function rangeOf(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

/** max |a|, and max |a − b|. */
export function largestOf(values) { return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0); }

export function largestGap(a, b) { return a.reduce((gap, value, at) => Math.max(gap, Math.abs(value - b[at])), 0); }

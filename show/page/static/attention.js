/* The formulas, as in convert/heads/encoding.py, convert/engines/separable.py and convert/certificate/layer.py, in double
   precision. Positions are rows and columns of the padded input; a query sits under the middle tap. */

/** Bytes of a base64 text. */
export function decodedBytes(text) { return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)); }

/** Numbers of a {type, data} pair: base64 of little-endian floats. */
export function decoded({ type, data }) {
  const bytes = decodedBytes(data);
  return type === "f8" ? new Float64Array(bytes.buffer) : new Float32Array(bytes.buffer);
}

/** softmax_k(-alpha (k - target)^2) over k = 0 ... length - 1. */
export function axisProbabilities(alpha, target, length) {
  const nearest = Math.min(Math.max(Math.round(target), 0), length - 1);
  const highest = -alpha * (nearest - target) ** 2;
  const probabilities = new Float64Array(length);
  let total = 0;
  for (let key = 0; key < length; key++) {
    probabilities[key] = Math.exp(-alpha * (key - target) ** 2 - highest);
    total += probabilities[key];
  }
  return probabilities.map((value) => value / total);
}

/** A head's attention: the outer product of rows and columns. */
export function headAttention(layer, head, query, alpha) {
  const [rows, columns] = [0, 1].map((axis) => axisProbabilities(
    alpha, queryPosition(layer, query, axis) + layer.centers[head][axis], layer.padded_size[axis]));
  return { rows, columns };
}

/** Where a query sits along an axis of the padded input: under the kernel's middle tap. */
export function queryPosition(layer, query, axis) {
  return layer.stride[axis] * query[axis] + layer.middle[axis];
}

/** sum_k p(k) plane(k) for one plane of numbers over the padded input. */
export function attended(attention, plane) {
  const { rows, columns } = attention;
  let sum = 0;
  for (let row = 0; row < rows.length; row++) {
    if (rows[row] === 0) continue;
    let along = 0;
    for (let column = 0; column < columns.length; column++) along += columns[column] * plane[row * columns.length + column];
    sum += rows[row] * along;
  }
  return sum;
}

/** The planes of a channel that a head reads, each with its weight: the input's channels, or the head's own values. */
export function headPlanes(layer, channel, head) {
  const size = layer.padded_size[0] * layer.padded_size[1];
  const plane = (number) => channel.numbers.subarray(number * size, (number + 1) * size);
  if (channel.projection === null) return [{ weight: 1, plane: plane(head) }];
  return channel.projection[head].map((weight, number) => ({ weight, plane: plane(number) }));
}

/** What each head adds to an output channel: sum_k p_h(k) v_h(k). */
export function contributions(layer, channel, attentions) {
  return attentions.map((attention, head) => headPlanes(layer, channel, head).reduce(
    (sum, { weight, plane }) => sum + weight * attended(attention, plane), 0));
}

/** The value v_h(k) of one key. */
export function valueAt(layer, channel, head, row, column) {
  const key = row * layer.padded_size[1] + column;
  return headPlanes(layer, channel, head).reduce((sum, { weight, plane }) => sum + weight * plane[key], 0);
}

/** tau(alpha) = 1 - theta_3(exp(-alpha))^-2, without cancellation. */
export function tailFraction(alpha) {
  let rest = 0;
  for (let n = 1, term; (term = Math.exp(-alpha * n * n)) > 0; n++) rest += 2 * term;
  return rest * (2 + rest) / (1 + rest) ** 2;
}

/** What the certificate allows for a channel; null where nothing is certified. */
export function channelBound(channel, alpha) {
  return channel.scale === null || channel.rounding === null ? null : tailFraction(alpha) * channel.scale + channel.rounding;
}

/* The formulas, as in convert/heads/encoding.py, convert/engines/separable.py and convert/certificate/layer.py, in double
   precision. Positions are rows and columns of the padded input; a query sits under the middle tap. */

/** Bytes of a base64 text. */
export function decodedBytes(text) { return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)); }

/** Numbers of a {type, data} pair: base64 of little-endian floats. */
export function decoded({ type, data }) {
  const { buffer } = decodedBytes(data);
  return type === "f8" ? new Float64Array(buffer) : new Float32Array(buffer);
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

/** The same along an axis of a layer's padded input; inner leaves out the padded keys. */
export function axisAttention({ pads, input_size, padded_size }, axis, target, alpha, inner = false) {
  if (!inner) return axisProbabilities(alpha, target, padded_size[axis]);
  const start = pads[2 * axis], shares = new Float64Array(padded_size[axis]);
  shares.set(axisProbabilities(alpha, target - start, input_size[axis]), start);
  return shares;
}

/** A head's attention: the outer product of rows and columns. */
export function headAttention(layer, head, query, alpha, inner = false) {
  const [rows, columns] = [0, 1].map((axis) =>
    axisAttention(layer, axis, queryPosition(layer, query, axis) + layer.centers[head][axis], alpha, inner));
  return { rows, columns };
}

/** Where a query sits along an axis of the padded input: under the kernel's middle tap. */
export function queryPosition(layer, query, axis) {
  return layer.stride[axis] * query[axis] + layer.middle[axis];
}

/** The pixel of the padded input that a query sits on, and the query that sits nearest to a pixel. */
export function markOf(layer, query) { return [0, 1].map((axis) => queryPosition(layer, query, axis)); }

export function queryAt({ stride, middle }, pixel) { return pixel.map((at, axis) => Math.round((at - middle[axis]) / stride[axis])); }

/** A query moved to the nearest output pixel. */
export function outputAt({ output_size }, query) {
  return query.map((at, axis) => Math.min(Math.max(Math.round(at), 0), output_size[axis] - 1));
}

/** sum_k p(k) plane(k) for one plane of numbers over the padded input. */
export function attended({ rows, columns }, plane) {
  let sum = 0;
  for (let row = 0; row < rows.length; row++) {
    if (rows[row] === 0) continue;
    let along = 0;
    for (let column = 0; column < columns.length; column++) along += columns[column] * plane[row * columns.length + column];
    sum += rows[row] * along;
  }
  return sum;
}

/** The highest probability of some heads. */
export function highestOf(attentions) {
  return Math.max(...attentions.map(({ rows, columns }) => Math.max(...rows) * Math.max(...columns)));
}

/** tau(alpha) = 1 - theta_3(exp(-alpha))^-2, without cancellation. */
export function tailFraction(alpha) {
  let rest = 0;
  for (let n = 1, term; (term = Math.exp(-alpha * n * n)) > 0; n++) rest += 2 * term;
  return rest * (2 + rest) / (1 + rest) ** 2;
}

/** Softmax of dot products of a query's vector with all keys', as spare heads look; vectors lie one behind the other. */
export function productAttention(asked, query, shown, width) {
  const scores = new Float64Array(shown.length / width);
  for (let key = 0; key < scores.length; key++) {
    for (let at = 0; at < width; at++) scores[key] += asked[query * width + at] * shown[key * width + at];
  }
  const highest = scores.reduce((most, score) => Math.max(most, score), -Infinity);
  const shares = scores.map((score) => Math.exp(score - highest)), total = shares.reduce((sum, share) => sum + share, 0);
  return shares.map((share) => share / total);
}

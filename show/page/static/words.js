/* Sentences of the page. Names from a checkpoint only ever become text. */

import { valueAt } from "./layer.js";
import { formatted } from "./numbers.js";

const PADDING = { zeros: "zeros", reflect: "its reflection", replicate: "copies of its edge", circular: "its other side" };

export function layerName(layer) { return layer.names[0] || "(the network itself)"; }

/** What Figure 1 shows at the moment. */
export function viewerCaption({ layer, data, window, cropped, channel }) {
  const seen = layer.own ? "your picture" : data.seen;
  const input = layer.seen ? `The input is what the layer sees of ${seen}` : "The input is empty, since the network's is not known";
  const mean = layer.picture.channels === 3 || layer.in_channels === 1 ? "" : `, the mean of its ${layer.in_channels} channels`;
  const drawn = layer.drawn ? ` The layer is ${layer.drawn}.` : "", all = layer.centers.length === layer.heads;
  const parts = [`Layer ${layerName(layer)}, ${layer.geometry}. ${input}${mean}.${drawn}`,
    "Orange marks the query, under the middle of the kernel; blue the centres of the heads.",
    "Each head's attention is drawn over the faint input."];
  if (layer.pads.some((width) => width > 0)) {
    parts.push(`The hatched padding, ${PADDING[layer.padding_mode]}, is seen by heads as well; the dashed line is the input's border.`);
  }
  if (cropped) parts.push(`Heads show ${window.rows} × ${window.columns} pixels around the query, the frame in the input.`);
  const sum = all ? "the output" : "what these taps and the bias give, as attention and as a convolution";
  if (channel) parts.push(`Each head adds its mean value under its attention; together with the bias they are ${sum}.`);
  else if (layer.seen) parts.push("This layer's values would make the file too large: conv2attn show --layer makes a page with them.");
  if (layer.spare?.trained) {
    parts.push(layer.spare.beside ? "What the spare heads add to the output is left out of it."
      : "Taps read the input with what the spare heads add to it, which the picture leaves out.");
  }
  return parts.join(" ");
}

/** What this layer's choices lack, and why. */
export function missingWords({ layer, channel, takesPicture }) {
  if (!channel) return "";
  const some = layer.channels.length < layer.out_channels
    ? [`The page holds ${layer.channels.length} of the layer's ${layer.out_channels} output channels, to stay small.`] : [];
  return [...some, ...(takesPicture ? [] : ["A layer with one or three input channels can take a picture of yours."])].join(" ");
}

export function chartCaption({ layer, channel }) {
  return `The largest difference between attention and convolution over all pixels of output channel ${channel.channel} of layer `
    + `${layerName(layer)}: measured in this page on this input (blue), and the worst case, what its certificate allows for any input of `
    + "this one's range (dashed). Both fall as exp(−α) until only rounding is left. The circle is the pixel of Figure 1 at the present α.";
}

/** The numbers of a head at a key. */
export function keyNumbers({ attention, mark, subject }, head, key) {
  const probability = attention[head].rows[key[0]] * attention[head].columns[key[1]];
  const offset = key.map((at, axis) => at - mark[axis]).map((n) => `${n > 0 ? "+" : n < 0 ? "−" : ""}${Math.abs(n)}`);
  const place = `Head ${head}, pixel (${key.join(", ")}) of the padded input, (${offset.join(", ")}) from the query`;
  const words = `${place}: probability ${formatted(probability)}`;
  if (!subject) return `${words}.`;
  const value = valueAt(subject, head, key);
  return `${words}, value ${formatted(value)}, product ${formatted(probability * value)}.`;
}

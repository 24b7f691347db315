/* What is shown, and how it is moved: a layer, an output channel, a query and alpha. */

import { channelBound, contributions, decoded, headAttention, queryPosition } from "./attention.js";
import { drawChart } from "./chart.js";
import { readPicture } from "./files.js";
import { Refusal } from "./layer.js";
import { OutputMaps, ownPicture, takePicture } from "./maps.js";
import { formatted, isUseful, numberBlock, signBlock } from "./numbers.js";
import { FAINT, Panel, drawScale, faded, inputPicture, paintAttention, readRamp, windowAround } from "./panels.js";
import { makeChain, makeSearchable, makeSortable } from "./table.js";
import { chartCaption, keyNumbers, viewerCaption } from "./words.js";

const MANY = 16; // heads whose panels are too small for words
const KEYS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

const find = (id) => document.getElementById(id);

class Viewer {
  constructor(data) {
    this.data = data;
    this.layers = data.layers.filter((layer) => layer.picture && layer.positional);
    if (!this.layers.length) return;
    this.image = new Panel(find("image"), 64);
    this.maps = new OutputMaps();
    this.fillChoices();
    this.listen();
    find("viewer").hidden = false;
    this.choose(this.layers[0].names[0]);
  }

  fillChoices() {
    find("layer").replaceChildren(...this.layers.map((layer) =>
      new Option(`${layer.names[0] || "the network itself"}: ${layer.geometry}`, layer.names[0])));
  }

  listen() {
    find("layer").addEventListener("change", (event) => this.choose(event.target.value));
    find("channel").addEventListener("change", (event) => { this.channel = this.layer.channels[event.target.value]; this.update(); });
    find("alpha").addEventListener("input", (event) => { this.alpha = 2 ** Number(event.target.value); this.update(); });
    find("extent").addEventListener("change", () => this.update());
    find("own").addEventListener("click", () => { this.alpha = null; this.update(); });
    for (const button of document.querySelectorAll("[data-layer]")) {
      button.addEventListener("click", () => { this.choose(button.dataset.layer); find("viewer").scrollIntoView(); });
    }
    find("own-image").addEventListener("change", ({ target }) => { this.takeFile(target.files[0]); target.value = ""; });
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => { event.preventDefault(); this.takeFile(event.dataTransfer.files[0]); });
    const image = find("image");
    image.addEventListener("pointerdown", (event) => { image.setPointerCapture(event.pointerId); this.moveTo(this.image.pixelAt(event)); });
    image.addEventListener("pointermove", (event) => {
      if (image.hasPointerCapture(event.pointerId)) this.moveTo(this.image.pixelAt(event));
    });
    image.addEventListener("keydown", (event) => this.onKey(event));
    for (const media of ["(prefers-color-scheme: dark)", "print"]) {
      matchMedia(media).addEventListener("change", () => { this.paintInput(); this.update(); });
    }
  }

  /** Shows a layer, if it can be shown. */
  choose(name) {
    const layer = this.layers.find((candidate) => candidate.names[0] === name);
    if (!layer) return;
    this.layer = layer;
    this.query = [...layer.query];
    this.alpha = null; // each head its own
    this.prepare(layer);
    this.channel = (layer.channels ?? [null])[0];
    find("layer").value = name;
    find("channel-label").hidden = !this.channel;
    find("own-label").hidden = !this.takesPicture;
    find("own-says").textContent = "";
    find("channel").replaceChildren(...(layer.channels ?? []).map(({ channel }, number) => new Option(channel, number)));
    for (const button of document.querySelectorAll("[data-layer]")) {
      button.closest("tr, li").classList.toggle("shown", button.dataset.layer === name);
    }
    this.makeHeads();
    this.paintInput();
    this.update();
  }

  /** Whether a picture can be this layer's input: it has one or three channels, of which the page holds the numbers. */
  get takesPicture() { return Boolean(this.channel?.projection) && [1, 3].includes(this.layer.in_channels); }

  async takeFile(file) {
    if (!file || !this.takesPicture) return;
    try {
      takePicture(this.layer, await readPicture(file, Math.max(...this.layer.input_size)));
      find("own-says").textContent = "Your picture, as this layer's input; it never leaves the page.";
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      find("own-says").textContent = error.message;
    }
    this.paintInput();
    this.update();
  }

  /** Decodes a layer's numbers, once. */
  prepare(layer) {
    const planes = layer.decoded ??= (layer.planes ?? []).map(decoded);
    for (const channel of layer.channels ?? []) {
      channel.numbers ??= planes[channel.planes];
      channel.expected ??= decoded(channel.convolution);
    }
  }

  makeHeads() {
    const { kernel_size: [, columns], centers: { length: heads } } = this.layer, many = heads > MANY;
    const panels = Array.from({ length: heads }, (_, head) => {
      const host = document.createElement("div"), caption = document.createElement("figcaption");
      const figure = document.createElement("figure");
      host.className = "panel";
      figure.append(host, ...(many ? [] : [caption]));
      const panel = new Panel(host, many ? 12 : 24);
      panel.canvas.setAttribute("role", "img");
      panel.canvas.setAttribute("aria-label", `Where head ${head} looks`);
      host.addEventListener("pointermove", (event) => this.point(head, panel.pixelAt(event)));
      host.addEventListener("pointerleave", () => this.point(null));
      return { figure, caption, panel };
    });
    find("heads").replaceChildren(...panels.map(({ figure }) => figure));
    find("heads").classList.toggle("many", many);
    find("heads").style.gridTemplateColumns = `repeat(${columns}, minmax(0, ${columns < 3 ? "240px" : "1fr"}))`;
    this.heads = panels;
  }

  onKey(event) {
    const step = KEYS[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const times = event.shiftKey ? 5 : 1;
    this.setQuery(this.query.map((at, axis) => at + times * step[axis]));
  }

  /** Takes the query whose mark is nearest to a pixel of the padded input. */
  moveTo(pixel) {
    const { stride, middle } = this.layer;
    this.setQuery(pixel.map((at, axis) => Math.round((at - middle[axis]) / stride[axis])));
  }

  setQuery(query) {
    const inside = query.map((at, axis) => Math.min(Math.max(at, 0), this.layer.output_size[axis] - 1));
    if (inside.every((at, axis) => at === this.query[axis])) return;
    this.query = inside;
    this.update();
  }

  alphaOf(head) { return this.alpha ?? this.layer.alpha[head]; }

  get mark() { return [0, 1].map((axis) => queryPosition(this.layer, this.query, axis)); }

  /** Recomputes everything that is shown. */
  update() {
    performance.mark("update");
    this.attention = this.heads.map((_, head) => headAttention(this.layer, head, this.query, this.alphaOf(head)));
    this.added = this.channel && contributions(this.layer, this.channel, this.attention);
    this.drawMarks();
    this.drawHeads();
    this.writeAlpha();
    const here = this.writeResult();
    this.drawError(here);
    this.maps.draw(this);
    this.writeWords();
    performance.measure("conv2attn update", "update");
  }

  /** The input's pictures, as it is and as it shows through attention; they change with the layer and the colours. */
  paintInput() {
    const [rows, columns] = this.layer.padded_size;
    this.ramp = readRamp();
    this.picture = this.layer.own ? ownPicture(this.layer) : inputPicture(this.layer);
    this.faint = faded(this.picture, this.ramp.subarray(0, 3), FAINT);
    this.image.paint({ top: 0, left: 0, rows, columns }, this.picture);
  }

  drawMarks() {
    const { padded_size: [rows, columns], centers } = this.layer;
    const targets = centers.map(([row, column]) => ["key", this.mark[0] + row, this.mark[1] + column, 1, 1]);
    this.window = this.visible();
    this.cropped = this.window.rows < rows || this.window.columns < columns;
    const { top, left, rows: high, columns: wide } = this.window;
    const crop = this.cropped ? [["crop", top, left, high, wide]] : [];
    this.imageMarks = [...targets, ["query", ...this.mark, 1, 1], ...crop];
    this.image.mark(this.layer, this.imageMarks);
  }

  /** The window of the padded input that panels of heads show: around the query, or all of it. */
  visible() { return windowAround(this.layer, this.mark, find("extent").value === "all"); }

  drawHeads() {
    const highest = Math.max(...this.attention.map(({ rows, columns }) => Math.max(...rows) * Math.max(...columns)));
    this.heads.forEach(({ panel, caption }, head) => {
      panel.paint(this.window, this.faint, (bytes) => paintAttention(bytes, this, this.attention[head], highest));
      panel.mark(this.layer, [["query", ...this.mark, 1, 1]]);
      caption.textContent = this.added ? `adds ${formatted(this.added[head])}` : "";
    });
    find("highest").textContent = formatted(highest);
    drawScale(find("scale"), this.ramp);
  }

  writeAlpha() {
    const alphas = this.layer.alpha, low = Math.min(...alphas), high = Math.max(...alphas), slider = find("alpha");
    const own = low === high ? formatted(low) : `${formatted(low)} to ${formatted(high)}, each head its own`;
    const shown = this.alpha ?? (low === high ? low : null);
    if (shown !== null) slider.value = Math.log2(shown);
    const words = shown === null ? own : formatted(shown);
    find("alpha-value").textContent = `= ${words}`;
    slider.setAttribute("aria-valuetext", words);
    find("own").disabled = this.alpha === null;
    const at = (Math.log2(low) - Number(slider.min)) / (Number(slider.max) - Number(slider.min));
    const mark = find("own-mark");
    mark.hidden = !(low === high && at >= 0 && at <= 1);
    mark.style.left = `calc(8px + (100% - 16px) * ${at})`;
    mark.title = `the layer's own: ${own}`;
  }

  /** Attention beside convolution; returns the pixel's difference and its bound. */
  writeResult() {
    const result = find("result");
    result.hidden = !this.channel;
    if (!this.channel) return { difference: null, bound: null };
    const attention = this.channel.bias + this.added.reduce((sum, value) => sum + value, 0);
    const convolution = this.channel.expected[this.query[0] * this.layer.output_size[1] + this.query[1]];
    const difference = Math.abs(attention - convolution);
    const alphas = this.heads.map((_, head) => this.alphaOf(head));
    const bound = this.layer.at_taps ? channelBound(this.channel, Math.min(...alphas)) : null;
    this.output = { attention, convolution, difference, bound };
    result.replaceChildren(numberBlock("attention, computed here", attention, 7), signBlock("−"),
      numberBlock(`convolution, ${this.layer.own ? "computed here" : "by PyTorch"}`, convolution, 7), signBlock("="),
      numberBlock("difference", difference, 3));
    if (bound !== null) {
      const name = isUseful(bound, this.channel.expected) ? "proven bound" : "no useful bound: above every output";
      result.append(signBlock(difference <= bound ? "≤" : ">"), numberBlock(name, bound, 3));
    }
    return { difference, bound };
  }

  drawError(here) {
    find("error").hidden = !this.channel || !this.layer.at_taps;
    if (find("error").hidden) return;
    drawChart(find("chart"), this.channel.curve, this.alphaOf(0), here);
    find("chart-caption").textContent = chartCaption(this);
  }

  writeWords() {
    find("image-title").textContent = `Input, ${this.layer.input_size.join(" × ")}`;
    const { heads, centers: { length: drawn } } = this.layer, count = drawn < heads ? `${drawn} of ${heads}` : heads;
    find("heads-title").textContent = heads === 1 ? "One head" : `${count} heads, as their taps lie in the kernel`;
    find("query-text").textContent = `Query: output pixel (${this.query.join(", ")}). Drag it, or use the arrow keys.`;
    find("caption").textContent = viewerCaption(this);
    if (!this.pointed) find("readout").textContent = "Point at a head for its numbers.";
  }

  /** Shows the numbers of a head at a key, or of none. */
  point(head, key) {
    this.pointed = head !== null;
    this.image.mark(this.layer, [...this.imageMarks, ...(this.pointed ? [["pointed", ...key, 1, 1]] : [])]);
    if (this.pointed) find("readout").textContent = keyNumbers(this, head, key);
    else this.writeWords();
  }
}

makeSortable(find("layers"));
makeSearchable(find("layers"), find("search"));
makeChain(find("layers"), find("chain"));
window.viewer = new Viewer(JSON.parse(find("data").textContent));

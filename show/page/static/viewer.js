/* What is shown, and how it is moved: a layer, an output channel, a query and alpha. */

import { decodedBytes, markOf, outputAt, queryAt } from "./attention.js";
import { dragged, find, made, onLook } from "./dom.js";
import { readPicture } from "./files.js";
import { Refusal, addedBy, attentionAt, channelBound, seenBy } from "./layer.js";
import { OutputMaps, channelSubject, takePicture } from "./maps.js";
import { formatted, largestOf, rangeOf } from "./numbers.js";
import { HeadPanels, Panel, windowAround } from "./panels.js";
import { colourPicture, lookOf } from "./pictures.js";
import { SparePanels } from "./spare.js";
import { makeChain, makeSearchable, makeSortable } from "./table.js";
import { chartCaption, keyNumbers, missingWords, viewerCaption } from "./words.js";

class Viewer {
  constructor(data) {
    this.data = data;
    this.layers = data.layers.filter(({ picture, positional }) => picture && positional);
    if (!this.layers.length) return;
    Object.assign(this, { image: new Panel(find("image"), 64), maps: new OutputMaps(), spare: new SparePanels() });
    this.heads = new HeadPanels(find("heads"), { pointed: (head, key) => this.point(head, key) });
    find("layer").replaceChildren(...this.layers.map(({ names: [name], geometry }) =>
      new Option(`${name || "the network itself"}: ${geometry}`, name)));
    this.listen();
    find("viewer").hidden = false;
    this.choose(this.layers[0].names[0]);
  }

  listen() {
    find("layer").addEventListener("change", ({ target }) => this.choose(target.value));
    find("channel").addEventListener("change", ({ target }) => { this.channel = this.layer.channels[target.value]; this.update(); });
    find("alpha").addEventListener("input", ({ target }) => { this.alpha = 2 ** Number(target.value); this.update(); });
    find("extent").addEventListener("change", () => this.update());
    find("own").addEventListener("click", () => { this.alpha = null; this.update(); });
    for (const button of document.querySelectorAll("[data-layer]")) {
      button.addEventListener("click", () => { this.choose(button.dataset.layer); find("viewer").scrollIntoView(); });
    }
    find("own-image").addEventListener("change", ({ target }) => { this.takeFile(target.files[0]); target.value = ""; });
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => { event.preventDefault(); this.takeFile(event.dataTransfer.files[0]); });
    dragged(find("image"), (event) => this.setQuery(queryAt(this.layer, this.image.pixelAt(event))),
      (step) => this.setQuery(this.query.map((at, axis) => at + step[axis])));
    onLook(() => { this.paintInput(); this.update(); });
  }

  /** Shows a layer, if it can be shown. */
  choose(name) {
    const layer = this.layers.find((candidate) => candidate.names[0] === name);
    if (!layer) return;
    this.layer = layer;
    this.query = [...layer.query];
    this.alpha = null; // each head its own
    for (const channel of layer.channels ?? []) channel.subject ??= channelSubject(layer, channel);
    this.channel = (layer.channels ?? [null])[0];
    find("layer").value = name;
    find("channel-label").hidden = !this.channel;
    find("own-label").hidden = !this.takesPicture;
    find("own-says").textContent = "";
    find("missing").textContent = missingWords(this);
    find("channel").replaceChildren(...(layer.channels ?? []).map(({ channel }, number) => new Option(channel, number)));
    for (const button of document.querySelectorAll("[data-layer]")) {
      button.closest("tr, li").classList.toggle("shown", button.dataset.layer === name);
    }
    this.heads.make(layer);
    this.spare.choose(layer);
    this.paintInput();
    this.update();
  }

  /** A channel's planes, taps and bias, or null where the page has no values. */
  get subject() { return this.channel?.subject ?? null; }

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

  setQuery(query) {
    const inside = outputAt(this.layer, query);
    if (inside.every((at, axis) => at === this.query[axis])) return;
    this.query = inside;
    this.update();
  }

  alphaOf = (head) => this.alpha ?? this.layer.alpha[head];

  get mark() { return markOf(this.layer, this.query); }

  /** Recomputes everything that is shown. */
  update() {
    const { layer, subject } = this, start = performance.now();
    this.alphas = layer.centers.map((_, head) => this.alphaOf(head));
    this.attention = attentionAt(layer, this.query, this.alphas);
    this.added = subject && addedBy(subject.taps, seenBy(subject, this.attention));
    this.drawMarks();
    this.drawHeads();
    this.writeAlpha();
    this.writeResult();
    this.maps.draw(this);
    this.spare.draw(this);
    this.writeWords();
    performance.measure("conv2attn update", { start, end: performance.now() });
  }

  /** The input's pictures, as it is and as it shows through attention; they change with the layer and the colours. */
  paintInput() {
    const { layer, subject } = this, [rows, columns] = layer.padded_size, { data, channels } = layer.picture;
    const bytes = decodedBytes(data), planes = layer.own ? subject.planes
      : Array.from({ length: channels }, (_, band) => bytes.filter((_, at) => at % channels === band));
    this.look = lookOf(colourPicture(planes, columns, planes.map((plane) => layer.own ? rangeOf(plane) : [0, 255])));
    this.image.paint({ top: 0, left: 0, rows, columns }, this.look.picture);
  }

  drawMarks() {
    const { padded_size: [rows, columns], centers } = this.layer, { mark } = this;
    this.window = windowAround(this.layer, mark, find("extent").value === "all");
    const { top, left, rows: high, columns: wide } = this.window;
    this.cropped = high < rows || wide < columns;
    this.imageMarks = [...centers.map(([row, column]) => ["key", mark[0] + row, mark[1] + column]), ["query", ...mark],
      ...(this.cropped ? [["crop", top, left, high, wide]] : [])];
    this.image.mark(this.layer, this.imageMarks);
  }

  drawHeads() {
    const captions = this.attention.map((_, head) => ({ words: `Where head ${head} looks`,
      parts: this.added ? [`adds ${formatted(this.added[head])}`] : [] }));
    find("highest").textContent = formatted(this.heads.draw(this.layer, this.attention, this.mark, this.look, captions, this.window));
    const context = find("scale").getContext("2d"), strip = context.createImageData(128, 1);
    for (let at = 0; at < 128; at++) strip.data.set([...this.look.ramp.subarray(6 * at, 6 * at + 3), 255], 4 * at);
    context.putImageData(strip, 0, 0);
  }

  writeAlpha() {
    const [low, high] = rangeOf(this.layer.alpha), slider = find("alpha"), mark = find("own-mark");
    const own = low === high ? formatted(low) : `${formatted(low)} to ${formatted(high)}, each head its own`;
    const shown = this.alpha ?? (low === high ? low : null);
    if (shown !== null) slider.value = Math.log2(shown);
    const words = shown === null ? own : formatted(shown);
    find("alpha-value").textContent = `= ${words}`;
    slider.setAttribute("aria-valuetext", words);
    find("own").disabled = this.alpha === null;
    const at = (Math.log2(low) - Number(slider.min)) / (Number(slider.max) - Number(slider.min));
    mark.hidden = !(low === high && at >= 0 && at <= 1);
    mark.style.left = `calc(8px + (100% - 16px) * ${at})`;
    mark.title = `the layer's own: ${own}`;
  }

  /** Attention beside convolution at the query: the measured difference, and the worst case. */
  writeResult() {
    const { subject, channel, layer } = this, result = find("result"), sign = (words) => made("div", "sign", words);
    const block = (name, value, digits) =>
      made("div", "", made("span", "name", name), made("span", "value", formatted(value, digits)));
    result.hidden = !subject;
    this.output = { difference: null, bound: null };
    if (!subject) return;
    const attention = subject.bias + this.added.reduce((sum, value) => sum + value, 0);
    const convolution = subject.expected[this.query[0] * layer.output_size[1] + this.query[1]];
    const difference = Math.abs(attention - convolution);
    const bound = layer.at_taps ? channelBound(channel, Math.min(...this.alphas)) : null;
    this.output = { attention, convolution, difference, bound };
    const who = layer.own ? "computed here" : "by PyTorch";
    result.replaceChildren(block("attention, computed here", attention, 7), sign("−"), block(`convolution, ${who}`, convolution, 7),
      sign("="), block("measured difference", difference, 3));
    if (bound !== null) {
      const isUseful = bound <= largestOf(subject.expected); // as convert/certificate/layer.py says
      const name = isUseful ? "worst case for this range" : "no useful worst case: above every output";
      result.append(sign(difference <= bound ? "≤" : ">"), block(name, bound, 3));
    }
  }

  writeWords() {
    find("image-title").textContent = `Input, ${this.layer.input_size.join(" × ")}`;
    const { heads, centers: { length: drawn } } = this.layer, count = drawn < heads ? `${drawn} of ${heads}` : heads;
    find("heads-title").textContent = heads === 1 ? "One head" : `${count} heads, as their taps lie in the kernel`;
    find("query-text").textContent = `Query: output pixel (${this.query.join(", ")}). Drag it, or use the arrow keys.`;
    find("caption").textContent = viewerCaption(this);
    if (this.channel) find("chart-caption").textContent = chartCaption(this);
    if (!this.pointed) find("readout").textContent = "Point at a head for its numbers.";
  }

  /** Shows the numbers of a head at a key, or of none. */
  point(head, key) {
    this.pointed = head !== null;
    this.image.mark(this.layer, [...this.imageMarks, ...(this.pointed ? [["pointed", ...key]] : [])]);
    if (this.pointed) find("readout").textContent = keyNumbers(this, head, key);
    else this.writeWords();
  }
}

makeSortable(find("layers"));
makeSearchable(find("layers"), find("search"));
makeChain(find("layers"), find("chain"), find("chain-words"));
window.viewer = new Viewer(JSON.parse(find("data").textContent));

/* The image and the layer that all scenes share: those of the article, and what the reader brings. */

import { LAYERS, drawnImages } from "./examples.js";
import { find } from "../../page/static/dom.js";
import { droppedFiles, readNetwork, readPicture } from "../../page/static/files.js";
import { PADDING_MODES, Refusal } from "../../page/static/layer.js";

const GREY = [0.299, 0.587, 0.114]; // shares of red, green and blue
const OWN = "own";
const PLAIN = { stride: [1, 1], dilation: [1, 1], padding: "same", padding_mode: "zeros" }; // where no file says

export class Setup {
  static first = { mode: "guided", image: "cat", layer: "emboss", channel: 0, stride: 0, dilation: 0, padding: "own", kernel: "" };
  static limits = { channel: [0, 65535], stride: [0, 8], dilation: [0, 8] };

  constructor(app) {
    this.app = app;
    this.images = new Map(drawnImages(app.tensors));
    this.layers = new Map(LAYERS);
    this.listen();
  }

  listen() {
    const choose = (values) => this.app.choose(values);
    for (const name of ["image", "padding"]) find(name).addEventListener("change", () => choose({ [name]: find(name).value }));
    for (const name of ["channel", "stride", "dilation"]) {
      find(name).addEventListener("change", () => choose({ [name]: Number(find(name).value) }));
    }
    find("layer").addEventListener("change", () => this.chooseLayer(find("layer").value));
    find("kernel").addEventListener("change", ({ target: { value } }) =>
      choose({ kernel: value, layer: value.trim() ? "edited" : Setup.first.layer }));
    for (const button of document.querySelectorAll("button[data-mode]")) {
      button.addEventListener("click", () => choose({ mode: button.dataset.mode }));
    }
    find("copy").addEventListener("click", () => this.copyLink());
    for (const input of [find("own-image"), find("own-network")]) {
      input.addEventListener("change", () => { this.take([...input.files]); input.value = ""; });
    }
    document.addEventListener("paste", (event) => { if (event.clipboardData.files.length) this.take([...event.clipboardData.files]); });
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", async (event) => {
      event.preventDefault();
      await this.take(droppedFiles(event.dataTransfer));
    });
  }

  /** Takes files that a reader brought: a network, or else a picture. */
  async take(files) {
    this.say("");
    try {
      const found = await files;
      if (!found.length) throw new Refusal("Nothing that was dropped is a file.");
      if (found.some(({ name }) => /\.safetensors$|^config\.json$/.test(name))) await this.takeNetwork(found);
      else await this.takePicture(found[0]);
    } catch (error) {
      if (!(error instanceof Refusal || error instanceof DOMException)) throw error;
      this.say(error instanceof Refusal ? error.message : "The file could not be read.");
    }
  }

  async takePicture(file) {
    const picture = await readPicture(file);
    this.say(`${file.name || "Your picture"}: shown with ${picture.size.join(" × ")} pixels.`);
    this.images.set(OWN, { ...picture, label: `yours: ${file.name}`.slice(0, 60) });
    this.app.choose({ image: OWN });
  }

  async takeNetwork(files) {
    const found = await readNetwork(files);
    for (const name of [...this.layers.keys()].filter((each) => each.startsWith(`${OWN}:`))) this.layers.delete(name);
    for (const each of found) this.layers.set(`${OWN}:${each.name}`, { ...each, label: `yours: ${each.name}` });
    if (!await this.chooseLayer(`${OWN}:${found[0].name}`)) return;
    this.say(`${found.length} convolution${found.length === 1 ? "" : "s"} found; choose one as the layer.`);
  }

  async chooseLayer(name) {
    try {
      const layer = this.layers.get(name);
      if (layer?.load) Object.assign(layer, await layer.load(), { load: null });
      this.app.choose({ layer: name, channel: 0, stride: 0, dilation: 0, padding: "own", "nine.off": "" });
      return true;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.say(error.message);
      this.fill();
      return false;
    }
  }

  /** What the state chooses: an image, a layer with its weights, an output channel, and the geometry. */
  chosen() {
    const { state } = this.app, image = this.images.get(state.get("image")) ?? this.images.get(Setup.first.image);
    let layer = state.get("layer") === "edited" ? this.edited() : this.layers.get(state.get("layer"));
    if (!layer?.weight) layer = this.layers.get(Setup.first.layer);
    const [, , ...kernel_size] = layer.shape, own = layer.spec ?? PLAIN;
    const [stride, dilation, padding] = ["stride", "dilation", "padding"].map((name) => state.get(name));
    const spec = { ...own, kernel_size, ...(stride >= 1 && { stride: [stride, stride].map(Math.floor) }),
      ...(dilation >= 1 && { dilation: [dilation, dilation].map(Math.floor) }) };
    if (PADDING_MODES.includes(padding)) Object.assign(spec, { padding: "same", padding_mode: padding });
    if (padding === "valid") spec.padding = "valid";
    return { image, layer, spec, channel: Math.min(Math.floor(state.get("channel")), layer.shape[0] - 1) };
  }

  /** The kernel that was typed in: as many numbers as a square has. */
  edited() {
    const weight = this.app.state.get("kernel").split(/[\s,;]+/).filter(Boolean).map(Number), side = Math.sqrt(weight.length);
    if (!Number.isInteger(side) || side < 1 || side > 11 || !weight.every(Number.isFinite)) {
      this.say("A kernel is a square of numbers, row by row: 1, 4, 9, 16 or 25 of them, and so on up to 121.");
      return null;
    }
    return { label: "edited", weight, shape: [1, 1, side, side], bias: null };
  }

  /** The planes that a layer reads of an image: its grey values for one input channel, else red, green and blue. */
  planesFor({ rgb }, { shape }) {
    const pixels = Array.from({ length: rgb.length / 3 }, (_, at) => at);
    const plane = (value) => Float64Array.from(pixels, value);
    if (shape[1] === 1) return [plane((at) => GREY.reduce((sum, share, band) => sum + share * rgb[3 * at + band], 0) / 255)];
    return [0, 1, 2].map((band) => plane((at) => rgb[3 * at + band] / 255));
  }

  /** Fills the controls with what is chosen. */
  fill() {
    const { state } = this.app, { layer, channel, spec, image } = this.chosen();
    const layers = [...this.layers, ...(state.get("layer") === "edited" ? [["edited", { label: "edited" }]] : [])];
    for (const [name, choices] of [["image", [...this.images]], ["layer", layers]]) {
      const wanted = state.get(name), known = choices.some(([choice]) => choice === wanted);
      find(name).replaceChildren(...choices.map(([choice, { label }]) => new Option(label, choice)));
      find(name).value = known ? wanted : Setup.first[name];
    }
    find("channel").max = layer.shape[0] - 1;
    find("channel").value = channel;
    find("channel-label").hidden = layer.shape[0] === 1;
    find("stride").value = spec.stride[0];
    find("dilation").value = spec.dilation[0];
    find("padding").value = state.get("padding");
    find("kernel").value = state.get("kernel") || (layer.shape[1] === 1 && layer.shape[0] === 1 ? layer.weight.join(" ") : "");
    document.documentElement.dataset.mode = state.get("mode") === "free" ? "free" : "guided";
    for (const button of document.querySelectorAll("button[data-mode]")) {
      button.setAttribute("aria-pressed", String(button.dataset.mode === document.documentElement.dataset.mode));
    }
    const [outputs, inputs, rows, columns] = layer.shape, colours = inputs === 1 ? "grey values" : inputs === 3 ? "three colours"
      : `three colours, channel c the colour c modulo 3`;
    const size = image.size.join(" × ");
    const shape = `${rows} × ${columns}, ${inputs} → ${outputs} channels`;
    find("layer-words").textContent = `${shape}, ${size} pixels; it reads the image's ${colours}.`;
  }

  async copyLink() {
    const own = this.app.state.get("image") === OWN || this.app.state.get("layer").startsWith(`${OWN}:`);
    this.app.state.commit();
    try {
      await navigator.clipboard.writeText(location.href);
      this.say(own ? "Copied; your own files stay here, so the link shows the article's in their place." : "Copied.");
    } catch { this.say("This browser does not let a file copy; the link is in the address bar."); }
  }

  say(words) { find("setup-says").textContent = words; }
}

/* The article: one image, one layer, one query for all scenes, and what of them is drawn when. */

import { markOf, outputAt, queryAt } from "../../page/static/attention.js";
import { find, onLook } from "../../page/static/dom.js";
import { Refusal, convolution, subjectOf } from "../../page/static/layer.js";
import { Setup } from "./setup.js";
import { State } from "./state.js";
import { alphaSliders } from "./views.js";
import { colourPicture, lookOf } from "../../page/static/pictures.js";
import { BlurScene } from "./scenes/blur.js";
import { BorderScene } from "./scenes/border.js";
import { HeadScene } from "./scenes/head.js";
import { NineScene } from "./scenes/nine.js";
import { SharpScene } from "./scenes/sharp.js";
import { SpareScene } from "./scenes/spare.js";
import { SumScene } from "./scenes/sum.js";

const SCENES = { sum: SumScene, head: HeadScene, nine: NineScene, sharp: SharpScene, border: BorderScene, blur: BlurScene,
  spare: SpareScene };
const DEMO_MS = 4500; // what moves by itself ends within five seconds
const REST_MS = 60; // after the last change, scenes beside the one that is moved are drawn

class Article {
  constructor() {
    this.tensors = JSON.parse(find("data").textContent);
    const classes = Object.values(SCENES);
    const first = Object.assign({}, Setup.first, ...classes.map((scene) => scene.first));
    const limits = Object.assign({}, Setup.limits, ...classes.map((scene) => scene.limits));
    this.state = new State(first, limits, (names) => this.changed(names));
    this.setup = new Setup(this);
    this.waiting = new Set();
    this.seen = new Set();
    this.prepare();
    this.paintLook();
    this.scenes = Object.fromEntries(Object.entries(SCENES).map(([id, scene]) => [id, new scene(this, find(id))]));
    this.showAlphas = Object.fromEntries(Object.keys(SCENES).map((id) => [id, alphaSliders(find(id), this.state)]));
    this.known = new Map();
    this.listen();
    this.state.restore(location.hash);
    this.drawAll();
    if (this.state.scene) find(this.state.scene)?.scrollIntoView();
  }

  listen() {
    const watch = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.seen[isIntersecting ? "add" : "delete"](target.id);
      this.request();
    }, { rootMargin: "200px" });
    for (const { host } of Object.values(this.scenes)) watch.observe(host);
    for (const button of document.querySelectorAll("[data-set]")) {
      button.addEventListener("click", () => this.choose(this.state.parsed(button.dataset.set), button.closest("section").id));
    }
    onLook(() => { this.paintLook(); this.drawAll(); });
    addEventListener("beforeprint", () => this.drawAll());
    addEventListener("resize", () => this.changed([]));
    this.watchDemos();
  }

  /** Sets values, as a step of the history. */
  choose(values, scene = this.state.scene) {
    this.state.set(values, scene);
    this.state.commit();
  }

  /** In guided mode a scene shows by itself, once, how it moves; any touch of it ends that. */
  watchDemos() {
    const still = matchMedia("(prefers-reduced-motion: reduce)"), shown = new Set();
    const watch = new IntersectionObserver((entries) => {
      for (const { target: { id }, isIntersecting } of entries) {
        if (!isIntersecting || shown.has(id) || still.matches || this.state.get("mode") !== "guided" || location.hash.length > 1) continue;
        shown.add(id);
        this.play(this.scenes[id]);
      }
    }, { threshold: 0.6 });
    for (const { host } of Object.values(this.scenes)) watch.observe(host);
    for (const type of ["pointerdown", "keydown", "change"]) addEventListener(type, () => { this.playing = null; }, true);
  }

  play(scene) {
    const start = performance.now(), before = { ...this.state.values }, turn = this.playing = { id: scene.host.id };
    const step = (now) => {
      const t = (now - start) / DEMO_MS;
      if (this.playing !== turn) return;
      this.show(scene.host.id, t < 1 ? t : null, before);
      if (t < 1) requestAnimationFrame(step);
      else this.playing = null;
    };
    requestAnimationFrame(step);
  }

  /** A moment t (0 to 1) of a scene's own motion; null puts the values back. */
  show(id, t, before = this.state.first) {
    const moved = this.scenes[id].demo(t ?? 0);
    this.state.set(t === null ? Object.fromEntries(Object.keys(moved).map((name) => [name, before[name]])) : moved);
  }

  changed(names) {
    if (!this.scenes) return;
    if (names.some((name) => name in Setup.first)) this.prepare(names);
    for (const id of Object.keys(this.scenes)) this.waiting.add(id);
    this.request();
  }

  /** Draws the scene that moves in the next frame, and the others that can be seen once it rests. */
  request() {
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.draw([...this.waiting].filter((id) => this.seen.has(id))), REST_MS);
    this.frame ??= requestAnimationFrame(() => {
      const id = this.playing?.id ?? this.state.scene, start = performance.now();
      this.frame = null;
      if (!this.waiting.has(id)) return;
      this.draw([id]);
      performance.measure("conv2attn update", { start, end: performance.now() });
    });
  }

  draw(ids) {
    for (const id of ids) {
      this.waiting.delete(id);
      this.showAlphas[id]();
      this.scenes[id].draw();
    }
  }

  /** A scene's value that depends on the keys alone; computed again when one of them is another. */
  once(name, keys, compute) {
    const known = this.known.get(name);
    if (known?.keys.every((key, at) => key === keys[at])) return known.value;
    const value = compute();
    this.known.set(name, { keys, value });
    return value;
  }

  drawAll() { this.draw(Object.keys(this.scenes)); }

  /** The image, the layer and the channel, as every scene reads them; what does not fit is said and undone. */
  prepare() {
    const { image, layer, channel, spec } = this.setup.chosen();
    try {
      this.subject = subjectOf(layer, channel, spec, this.setup.planesFor(image, layer), image.size);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.setup.say(error.message);
      this.state.values = { ...this.state.values, ...this.fitting };
      return this.setup.fill();
    }
    this.fitting = Object.fromEntries(Object.keys(Setup.first).map((name) => [name, this.state.get(name)]));
    this.convolved = convolution(this.subject);
    this.setup.fill();
    if (this.look) this.paintLook();
  }

  /** Colours of the style, and the input as it is and as it shows through attention. */
  paintLook() { this.look = lookOf(colourPicture(this.subject.planes, this.subject.padded_size[1])); }

  /** The query of a name, as an output pixel inside the present outputs. */
  query(name = "query") { return outputAt(this.subject, this.state.get(name)); }

  moveQuery(name, query, scene) { this.state.set({ [name]: outputAt(this.subject, query) }, scene); }

  /** Where a query sits on the padded input, and the query whose mark is nearest to a pixel of it. */
  markOf(query = this.query()) { return markOf(this.subject, query); }

  queryAt(pixel) { return queryAt(this.subject, pixel); }

  convolvedAt([row, column]) { return this.convolved[row * this.subject.output_size[1] + column]; }
}

window.article = new Article();

/* What is shown, as named values; a link holds those that are not the first ones, and the browser's history the rest. */

export class State {
  /** Values by name: numbers, words, or lists of as many numbers; limits {name: [low, high]}; changed() is told of changes. */
  constructor(first, limits, changed) {
    Object.assign(this, { first, limits, changed, values: { ...first } });
    this.scene = "";
    addEventListener("popstate", () => this.restore(location.hash));
  }

  get(name) { return this.values[name]; }

  /** Changes some values; the next commit() makes them a step of the history. */
  set(values, scene = this.scene) {
    this.scene = scene;
    Object.assign(this.values, values);
    this.changed(Object.keys(values));
  }

  /** "#scene?name=value&...", with the values that are not the first ones. */
  get link() {
    const changed = Object.entries(this.values).filter(([name, value]) => String(value) !== String(this.first[name]));
    const words = changed.map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`).join("&");
    return `#${this.scene}${words && `?${words}`}`;
  }

  /** A step of the history, if anything changed since the last one. */
  commit() {
    clearTimeout(this.waiting);
    if (this.link !== (location.hash || "#")) history.pushState(null, "", this.link);
  }

  /** As commit, once nothing more was changed for a while. */
  commitSoon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.commit(), 600);
  }

  /** Ends a drag at once, and what keys move once they rest. */
  done = (now) => { if (now) this.commit(); else this.commitSoon(); };

  restore(hash) {
    const [scene, words = ""] = hash.replace(/^#/, "").split("?");
    clearTimeout(this.waiting);
    this.values = { ...this.first, ...this.parsed(words) };
    this.scene = scene;
    this.changed(Object.keys(this.values));
  }

  /** The values that a link's words give; what is not a value of its name is left out. */
  parsed(words) {
    const found = {};
    for (const [name, word] of new URLSearchParams(words)) {
      const first = this.first[name], [low, high] = this.limits[name] ?? [-1e6, 1e6];
      if (first === undefined) continue;
      const numbers = word.split(",").map(Number), fits = (n) => Number.isFinite(n) && n >= low && n <= high;
      if (typeof first === "string") found[name] = word;
      else if (word !== "" && numbers.every(fits) && numbers.length === [first].flat().length) {
        found[name] = Array.isArray(first) ? numbers : numbers[0];
      }
    }
    return found;
  }
}

/* Where a layer's spare heads look from the query: with the weights that they started with, and now. */

import { decoded, productAttention } from "./attention.js";
import { find, made } from "./dom.js";
import { formatted, largestOf } from "./numbers.js";
import { Panel } from "./panels.js";
import { FAINT, rampPicture } from "./pictures.js";

const TIMES = { first: "before training", now: "after training" };

export class SparePanels {
  /** A panel for each head and time of a layer. */
  choose({ spare = null }) {
    const times = !spare ? [] : spare.first ? Object.keys(TIMES) : ["now"];
    this.panels = Array.from({ length: spare?.now.length ?? 0 }, (_, head) => head).flatMap((head) => times.map((time) => {
      const host = made("div", "panel"), caption = made("figcaption");
      const name = `spare head ${head}${spare.trained ? `, ${TIMES[time]}` : ""}`;
      host.setAttribute("role", "img");
      host.setAttribute("aria-label", name);
      const figure = made("figure", "", caption, host), vectors = spare[time][head].map(decoded);
      return { figure, caption, name, vectors, panel: new Panel(host, 24) };
    }));
    find("spare-heads").replaceChildren(...this.panels.map(({ figure }) => figure));
  }

  /** Each panel's shares over the padded input; a query of heads in front of the taps that lies in the padding has none. */
  numbers({ layer, query, mark }) {
    const [top, , left] = layer.pads, [rows, columns] = layer.input_size, [, width] = layer.padded_size;
    const inside = mark[0] >= top && mark[0] < top + rows && mark[1] >= left && mark[1] < left + columns;
    return this.panels.map(({ vectors: [asked, shown] }) => {
      const shares = new Float64Array(layer.padded_size[0] * width), at = query[0] * layer.output_size[1] + query[1];
      if (!inside && !layer.spare.beside) return shares;
      const found = productAttention(asked, at, shown, shown.length / (rows * columns));
      for (let row = 0; row < rows; row++) shares.set(found.subarray(row * columns, (row + 1) * columns), (top + row) * width + left);
      return shares;
    });
  }

  draw(viewer) {
    const { layer, look, mark } = viewer, { spare, pads: [top, , left], input_size: [rows, columns] } = layer;
    find("spare").hidden = !spare || Boolean(layer.own);
    if (find("spare").hidden) return;
    this.numbers(viewer).forEach((shares, at) => {
      const { panel, caption, name } = this.panels[at], highest = largestOf(shares);
      panel.paint({ top, left, rows, columns }, rampPicture(shares, look.picture.width, highest, look.ramp, look.picture, FAINT));
      panel.mark(layer, [["query", ...mark]]);
      caption.textContent = `${name}: at most ${formatted(highest)}`;
    });
    const held = spare.now.length < spare.heads ? ` The page has room for ${spare.now.length} of them.` : "";
    const start = !spare.trained ? " They add nothing yet." : spare.first ? " Both times on this input."
      : " This folder does not tell how they began.";
    find("spare-caption").textContent = `${spare.in_words}: the query’s attention to every pixel of the input, darkest (in the dark: `
      + `brightest) where it is highest.${start}${held}`;
  }
}

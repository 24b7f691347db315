/* The table of layers: sorted by a click on a column's name, searched by words, and drawn as a chain. */

import { made } from "./dom.js";

export function makeSortable(table) {
  const body = table.tBodies[0], headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const order = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    headings.forEach((other) => other.setAttribute("aria-sort", other === heading ? order : "none"));
    const numeric = heading.classList.contains("number"), sign = order === "ascending" ? 1 : -1;
    const key = (row) => row.cells[column].dataset.value;
    const number = (row) => key(row) === "" ? Infinity * sign : Number(key(row)); // what is unknown stays last
    const compare = numeric ? (a, b) => number(a) === number(b) ? 0 : number(a) - number(b)
      : (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
    body.append(...[...body.rows].sort((a, b) => sign * compare(a, b)));
  }));
}

const FEW = 12; // layers that nobody searches
const ONE_HOT = 104; // alpha from which attention is one-hot in single precision

/** Leaves the rows that hold every word of a search. */
export function makeSearchable(table, search) {
  const rows = [...table.tBodies[0].rows], input = search.querySelector("input"), output = search.querySelector("output");
  search.hidden = rows.length <= FEW;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    output.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} layers`;
  });
}

/** The network's layers in their order, a bar each: as high as it has heads, filled where attention is one-hot;
    words say more of the one that is pointed at. */
export function makeChain(table, chain, words) {
  chain.replaceChildren(...[...table.tBodies[0].rows].map((row) => {
    const [name, geometry, heads, alpha, , , measured, bound] = [...row.cells], bar = made("i"), button = made("button", "", bar);
    const about = `${geometry.textContent}, heads ${heads.textContent}, α ${alpha.textContent}`;
    bar.style.height = `${10 + 7 * Math.log2(Number(heads.dataset.value))}px`;
    bar.classList.toggle("sharp", Number(alpha.dataset.value) >= ONE_HOT);
    Object.assign(button, { type: "button", title: `${name.dataset.value || "the network itself"}: ${about}, `
      + `measured ${measured.textContent}, worst case ${bound.textContent}` });
    button.setAttribute("aria-label", button.title);
    button.dataset.layer = name.dataset.value;
    for (const type of ["pointerenter", "focus"]) button.addEventListener(type, () => { words.textContent = button.title; });
    return made("li", "", button);
  }));
}

/* The table of layers: a click on a column's name sorts by it, a second one the other way. */

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

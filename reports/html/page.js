"use strict";
// Without this script everything can be read; with it tables can be sorted, and print shows what is folded.
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
  };
  const words = new Intl.Collator("en", { numeric: true });

  const sort = (table, column) => {
    const header = table.tHead.rows[0].cells[column];
    const down = header.getAttribute("aria-sort") === "ascending";
    const body = table.tBodies[0];
    const isNumeric = header.classList.contains("n");
    const rows = Array.from(body.rows);
    rows.sort((one, other) => {
      if (!isNumeric) {
        const order = words.compare(one.cells[column].textContent, other.cells[column].textContent);
        return down ? -order : order;
      }
      const [a, b] = [value(one, column), value(other, column)];
      if (a === null || b === null) return (a === null) - (b === null); // what has no figure comes last, either way
      return down ? b - a : a - b;
    });
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    if (table.tBodies[0].rows.length < 2) continue;
    Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.title = "sort by " + header.textContent;
      button.addEventListener("click", () => sort(table, column));
      header.replaceChildren(button);
    });
  }

  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = target && target.closest("details.group");
    if (folded) folded.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
  });
})();

"use strict";
// Sort a table by the column whose heading is pressed; empty cells stay last. The first press sorts upwards.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => {
        const cell = row.cells[column];
        return cell.dataset.sort !== undefined ? cell.dataset.sort : cell.textContent.trim();
      };
      const isEmpty = (text) => text === "" || text === "–";
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const x = value(a), y = value(b);
        if (isEmpty(x) || isEmpty(y)) return isEmpty(x) - isEmpty(y);
        const difference = Number(x) - Number(y);
        const order = Number.isNaN(difference) ? x.localeCompare(y, "en", { numeric: true }) : difference;
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
// A link to what is folded, or lies in it, opens it; printing opens everything.
const openTarget = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  const folded = target && target.closest("details");
  if (folded) { folded.open = true; target.scrollIntoView(); }
};
addEventListener("hashchange", openTarget);
openTarget();
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));

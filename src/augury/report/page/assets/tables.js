// Tables: rows on demand, and sorting by a column.

const SVG = "http://www.w3.org/2000/svg";

function barsOf(bars) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "bar");
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const [look, start, width] of bars) {
    const rect = document.createElementNS(SVG, "rect");
    rect.setAttribute("class", look);
    rect.setAttribute("x", start);
    rect.setAttribute("width", width);
    rect.setAttribute("height", 10);
    svg.append(rect);
  }
  return svg;
}

function showAllRows(table, hidden) {
  const rows = hidden[table.id];
  if (!rows || !rows.length) return;
  delete hidden[table.id];
  const heads = [...table.tHead.rows[0].cells];
  const added = document.createDocumentFragment();
  for (const row of rows) {
    const line = element("tr");
    row.forEach(([text, key, bars], i) => {
      const cell = element("td", text);
      cell.className = heads[i].className;
      if (key !== null && cell.className !== "bars") cell.dataset.key = key;
      if (bars.length) cell.prepend(barsOf(bars));
      line.append(cell);
    });
    added.append(line);
  }
  table.tBodies[0].append(added);
  for (const name of ["more", "rest"]) document.querySelector(`[data-${name}="${table.id}"]`)?.remove();
  say(`${rows.length} rows added`);
}

function sortTable(table, column) {
  const head = table.tHead.rows[0].cells[column];
  const isNumber = head.classList.contains("number");
  const before = head.getAttribute("aria-sort");
  const order = before === "descending" ? 1 : before === "ascending" ? -1 : isNumber ? -1 : 1;
  const keyed = [...table.tBodies[0].rows].map((row) => {
    const cell = row.cells[column];
    return [cell.dataset.key ?? cell.textContent, row];
  });
  keyed.sort(([a], [b]) => {
    const difference = isNumber ? Number(a) - Number(b) : 0;
    return order * (isNumber && !Number.isNaN(difference) ? difference : String(a).localeCompare(String(b), "en", { numeric: true }));
  });
  table.tBodies[0].append(...keyed.map(([, row]) => row));
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order > 0 ? "ascending" : "descending");
}

function startTables(hidden) {
  document.addEventListener("click", (event) => {
    const more = event.target.closest("[data-more]");
    if (more) showAllRows(document.getElementById(more.dataset.more), hidden);
    const sort = event.target.closest(".sort");
    if (sort) {
      const table = sort.closest("table");
      showAllRows(table, hidden);
      sortTable(table, sort.closest("th").cellIndex);
    }
  });
}

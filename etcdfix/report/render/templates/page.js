"use strict";
// Filter and sort tables, copy commands. Without it the page shows everything, unsorted.
const MOST = 100; // rows in the page at once: more make every keystroke slow

function tableTools(table) {
  const body = table.tBodies[0];
  const heads = Array.from(table.tHead.rows[0].cells);
  const names = heads.map((head) => head.textContent);
  const all = Array.from(body.rows, (row) => ({ row, text: row.textContent.toLowerCase() }));
  let matches = all;
  const told = document.createElement("span");
  told.setAttribute("role", "status");
  const more = document.createElement("button");
  more.type = "button";
  let shown = MOST;

  function put(rows) {
    // A narrow screen has no head: each cell says what it is.
    for (const { row } of rows) {
      if (row.cells[0].dataset.head === undefined) names.forEach((name, at) => { row.cells[at].dataset.head = name; });
    }
    body.replaceChildren(...rows.map((one) => one.row));
  }

  function draw() {
    put(matches.slice(0, shown));
    const number = matches.length.toLocaleString("en");
    told.textContent = matches === all ? `${number} rows` : `${number} of ${all.length.toLocaleString("en")} rows`;
    more.hidden = matches.length <= shown;
    more.textContent = `Show ${Math.min(MOST, matches.length - shown)} more`;
  }

  function sortBy(at, head) {
    const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const one of all) one.cell = one.row.cells[at].textContent.trim();
    const numeric = all.every((one) => one.cell === "-" || /^-?\d+$/.test(one.cell));
    const order = numeric
      ? (a, b) => down * ((parseInt(a.cell, 10) || 0) - (parseInt(b.cell, 10) || 0))
      : (a, b) => down * (a.cell < b.cell ? -1 : a.cell > b.cell ? 1 : 0);
    all.sort(order);
    if (matches !== all) matches.sort(order);
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down === 1 ? "ascending" : "descending");
    draw();
  }

  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = names[at];
    button.addEventListener("click", () => sortBy(at, head));
    head.replaceChildren(button);
  });
  const tools = document.createElement("div");
  tools.className = "tools";
  if (all.length > 10) {
    const label = document.createElement("label");
    label.textContent = "Filter ";
    const input = document.createElement("input");
    input.type = "search";
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      matches = words.length ? all.filter((one) => words.every((word) => one.text.includes(word))) : all;
      shown = MOST;
      draw();
    });
    label.append(input);
    tools.append(label);
  }
  more.addEventListener("click", () => {
    shown += MOST;
    draw();
  });
  tools.append(told, more);
  table.parentElement.before(tools);
  draw();
  window.addEventListener("beforeprint", () => put(matches));
  window.addEventListener("afterprint", draw);
}

document.documentElement.classList.add("scripted");
document.querySelectorAll("table").forEach(tableTools);
window.addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const line = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(line.textContent.trim());
  } catch {
    // A page opened from a file may not have the clipboard: select it, and copy as of old.
    getSelection().selectAllChildren(line);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

"use strict";
// Filter and sort tables, copy commands. Without it the page shows everything, unsorted.
const MOST = 500; // rows in the page at once: more make every keystroke slow

function tableTools(table) {
  const body = table.tBodies[0];
  const all = Array.from(body.rows).map((row) => ({
    row,
    text: row.textContent.toLowerCase(),
    cells: Array.from(row.cells).map((cell) => cell.textContent.trim()),
  }));
  let matches = all;
  const told = document.createElement("span");
  told.setAttribute("role", "status");
  const more = document.createElement("button");
  more.type = "button";
  let shown = MOST;

  function draw() {
    body.replaceChildren(...matches.slice(0, shown).map((one) => one.row));
    told.textContent = matches.length === all.length ? `${all.length} rows` : `${matches.length} of ${all.length} rows`;
    more.hidden = matches.length <= shown;
    more.textContent = `Show ${Math.min(MOST, matches.length - shown)} more`;
  }

  function sortBy(number, head) {
    const down = head.getAttribute("aria-sort") === "ascending";
    const numeric = all.every((one) => one.cells[number] === "-" || /^-?\d+$/.test(one.cells[number]));
    const order = numeric
      ? (a, b) => (parseInt(a.cells[number], 10) || 0) - (parseInt(b.cells[number], 10) || 0)
      : (a, b) => (a.cells[number] < b.cells[number] ? -1 : a.cells[number] > b.cells[number] ? 1 : 0);
    for (const rows of [all, matches === all ? [] : matches]) {
      rows.sort((a, b) => (down ? -order(a, b) : order(a, b)));
    }
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    draw();
  }

  Array.from(table.tHead.rows[0].cells).forEach((head, number) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(number, head));
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
  window.addEventListener("beforeprint", () => body.replaceChildren(...matches.map((one) => one.row)));
  window.addEventListener("afterprint", draw);
}

document.querySelectorAll("table").forEach(tableTools);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const line = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(line.textContent);
  } catch {
    // A page opened from a file may not have the clipboard: select it, and copy as of old.
    getSelection().selectAllChildren(line);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

"use strict";
// Everything foreign gets into the page by textContent and setAttribute alone; the policy of the page refuses the rest.
(() => {
  const PAGE = 100, PRINTED = 2000;
  const TONES = { "breaks-now": "bad", "breaks-at-restart": "bad", "one-object": "warn" };
  const said = document.getElementById("said");

  function el(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== undefined));
    return made;
  }

  // ---- copy

  let silence = 0;
  function say(text) {
    said.textContent = text;
    clearTimeout(silence);
    silence = setTimeout(() => { said.textContent = ""; }, 4000);
  }

  function select(node) {
    const range = document.createRange();
    range.selectNodeContents(node);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }

  async function copy(code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      say("Copied");
    } catch {
      select(code);  // an old browser, or one that asks nobody
      say(document.execCommand("copy") ? "Copied" : "Selected: copy it with the keyboard");
    }
  }

  // No option may break behind its hyphens: somebody types it from the screen.
  const words = (text) => text.split(/(?<= )/).map((word) => word.startsWith("-") ? el("span", { class: "option" }, word) : word);
  const command = (text) => el("div", { class: "command" },
    el("pre", {}, el("code", {}, ...words(text))), el("button", { type: "button", class: "copy" }, "Copy"));

  for (const button of document.querySelectorAll(".copy")) button.hidden = false;
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".copy");
    if (button) copy(button.parentElement.querySelector("code"));
  });

  // ---- findings

  class Grid {
    constructor(box, data) {
      Object.assign(this, data);
      this.box = box;
      this.keyAt = this.columns.findIndex((column) => column.kind === "key");
      const width = this.columns.length;
      const text = (cell) => typeof cell === "number" ? this.shared[cell] : cell;
      // Of a row: its cells, the second line of its key, what is searched, and what it was made of.
      this.items = this.rows.map(([cells, facts, blocks], id) => {
        const values = new Array(width);
        let below = "";
        for (let at = 0; at < width; at++) {
          const cell = cells[at];
          if (at === this.keyAt) { values[at] = cell[0]; below = text(cell[1]); }
          else values[at] = this.columns[at].kind === "number" ? cell : text(cell);
        }
        return { id, values, below, facts, blocks, words: [...values, below, ...facts].join("\n").toLowerCase() };
      });
      delete this.rows;
      this.opened = new Set();
      this.size = PAGE;
      this.at = 0;
      this.active = 0;
      this.choices = new Map();
      this.build();
      this.sortedBy = -1;
      this.sortBy(0);
    }

    build() {
      this.input = el("input", { type: "search", autocomplete: "off", spellcheck: "false" });
      this.form = el("form", { class: "filter", role: "search", "aria-label": "Filter" },
        el("label", { class: "words" }, "Filter by words", this.input));
      this.columns.forEach((column, at) => { if (column.choose) this.form.append(this.chooser(column, at)); });
      const reset = el("button", { type: "reset" }, "Clear");
      this.form.append(reset);
      this.shown = el("p", { class: "shown", role: "status" });
      this.heads = this.columns.map((column, at) => {
        const button = el("button", { type: "button" }, column.title);
        button.addEventListener("click", () => this.sortBy(at));
        const kind = column.kind === "number" ? "number" : undefined;
        return el("th", { scope: "col", role: "columnheader", class: [kind, column.minor && "minor"].filter(Boolean).join(" ") || undefined }, button);
      });
      // The roles are said, since a narrow screen lays the table out as blocks.
      this.body = el("tbody", { role: "rowgroup" });
      const table = el("table", { "aria-label": "Findings", class: "list", role: "table" },
        el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...this.heads)), this.body);
      this.pager = el("nav", { class: "pager", "aria-label": "Pages" });
      const hint = el("p", { class: "keys" });
      hint.append(el("kbd", {}, "/"), " filters (\"in quotes\" as it stands), ", el("kbd", {}, "↑"), " ", el("kbd", {}, "↓"), " go from row to row, ",
        el("kbd", {}, "Enter"), " opens one, ", el("kbd", {}, "Esc"), " clears the filter");
      this.box.append(this.form, hint, this.shown, el("div", { class: "rows" }, table), this.pager);
      this.box.hidden = false;
      this.input.addEventListener("input", () => this.apply());
      // The field tells of its change once more when it is left: rows drawn anew then would swallow the click on one.
      this.form.addEventListener("change", (event) => { if (event.target !== this.input) this.apply(); });
      this.form.addEventListener("submit", (event) => event.preventDefault());
      this.form.addEventListener("reset", () => setTimeout(() => this.apply()));
      this.form.addEventListener("keydown", (event) => {
        if (event.key === "Escape") { event.preventDefault(); this.form.reset(); }
        if (event.key === "ArrowDown" && event.target === this.input) { event.preventDefault(); this.focus(0); }
      });
      this.body.addEventListener("click", (event) => this.clicked(event));
      this.body.addEventListener("keydown", (event) => this.pressed(event));
    }

    chooser(column, at) {
      const counts = new Map();
      for (const item of this.items) counts.set(item.values[at], (counts.get(item.values[at]) || 0) + 1);
      const rank = this.ranks(column);
      const values = [...counts.keys()].sort((a, b) => rank(a) - rank(b) || counts.get(b) - counts.get(a));
      const choice = el("select", {}, el("option", { value: "" }, "all"));
      values.forEach((value, number) => choice.append(el("option", { value: String(number) }, `${value || "(none)"} (${counts.get(value)})`)));
      this.choices.set(at, { choice, values });
      return el("label", {}, column.title, choice);
    }

    ranks(column) {
      const order = new Map((column.order || []).map((value, number) => [value, number]));
      return (value) => order.has(value) ? order.get(value) : order.size;
    }

    sortBy(at) {
      const down = this.sortedBy === at && this.heads[at].getAttribute("aria-sort") === "ascending";
      this.sortedBy = at;
      this.heads.forEach((head, number) => {
        if (number === at) head.setAttribute("aria-sort", down ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
      });
      const rank = this.ranks(this.columns[at]);
      const compare = this.columns[at].kind === "number" ? (a, b) => a - b
        : (a, b) => rank(a) - rank(b) || (a < b ? -1 : a > b ? 1 : 0);
      const sign = down ? -1 : 1;
      this.order = [...this.items].sort((a, b) => sign * compare(a.values[at], b.values[at]) || a.id - b.id);
      this.apply();
    }

    apply() {
      const words = [...this.input.value.toLowerCase().matchAll(/"([^"]+)"|[^\s"]+/g)].map((found) => found[1] || found[0]);
      const chosen = [];
      for (const [at, { choice, values }] of this.choices) if (choice.value !== "") chosen.push([at, values[Number(choice.value)]]);
      this.found = words.length || chosen.length
        ? this.order.filter((item) => chosen.every(([at, value]) => item.values[at] === value) && words.every((word) => item.words.includes(word)))
        : this.order;
      this.at = 0;
      this.active = 0;
      this.draw();
    }

    draw() {
      const end = Math.min(this.at + this.size, this.found.length);
      const rows = [];
      for (let number = this.at; number < end; number++) {
        const item = this.found[number];
        rows.push(this.row(item, number));
        if (this.opened.has(item.id)) rows.push(this.detail(item));
      }
      this.body.replaceChildren(...rows);
      const all = this.items.length.toLocaleString("en");
      const of = this.found.length === this.items.length ? all : `${this.found.length.toLocaleString("en")} that fit, of ${all}`;
      this.shown.textContent = this.found.length ? `${(this.at + 1).toLocaleString("en")} to ${end.toLocaleString("en")} of ${of}` : `Nothing fits, of ${all}`;
      this.pages(end);
    }

    pages(end) {
      const step = (label, to, possible) => {
        const button = el("button", { type: "button", disabled: !possible }, label);
        button.addEventListener("click", () => { this.turn(to); this.focus(0); });
        return button;
      };
      const last = Math.max(Math.ceil(this.found.length / this.size) - 1, 0) * this.size;
      this.pager.hidden = this.found.length <= this.size;
      this.pager.replaceChildren(
        step("First", 0, this.at > 0), step("Previous", this.at - this.size, this.at > 0),
        step("Next", this.at + this.size, end < this.found.length), step("Last", last, end < this.found.length));
    }

    turn(to) {
      this.at = Math.max(to, 0);
      this.active = 0;
      this.draw();
    }

    row(item, number) {
      const open = this.opened.has(item.id);
      const cells = this.columns.map((column, at) => {
        const value = item.values[at];
        if (at === this.keyAt) {
          const button = el("button", {
            type: "button", class: "open", "aria-expanded": String(open), "aria-controls": open ? `finding-${item.id}` : undefined,
            tabindex: number - this.at === this.active ? "0" : "-1",
          }, value);
          return el("td", { class: "key", role: "cell" }, button, item.below ? el("span", { class: "below" }, item.below) : undefined);
        }
        const kinds = [column.kind === "text" ? "" : column.kind, column.minor ? "minor" : ""];
        if (column.kind === "mark") kinds.push(TONES[value] || "");
        return el("td", { role: "cell", class: kinds.filter(Boolean).join(" ") || undefined },
          column.kind === "number" ? String(value) : value || "–");
      });
      const made = el("tr", { class: "row", role: "row" }, ...cells);
      made.dataset.id = item.id;
      return made;
    }

    detail(item) {
      const key = item.values[this.keyAt];
      const text = (shared) => shared.replaceAll("\0", key);
      const inside = el("div", { class: "inside" });
      const facts = this.facts.map((name, at) => [name, item.facts[at]]).filter(([, value]) => value);
      const short = [...this.columns.map((column, at) => [column, item.values[at]])]
        .filter(([column, value]) => column.minor && value !== "").map(([column, value]) => [column.title, String(value)]);
      if (short.length || facts.length) {
        inside.append(el("dl", { class: "facts" }, ...[...short, ...facts].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
      }
      for (const block of item.blocks) {
        const [kind, title, items] = block;
        if (title) inside.append(el("h3", {}, title));
        const lines = items.map((one) => (typeof one === "number" ? this.shared[one] : one).map(text));
        if (kind === "text") inside.append(...lines.map(([line]) => el("p", {}, line)));
        if (kind === "evidence") {
          inside.append(el("ul", { class: "evidence" }, ...lines.map(([check, result, more]) =>
            el("li", {}, `${check}: `, el("span", { class: "result" }, result), more ? ` – ${more}` : ""))));
        }
        if (kind === "ways") {
          inside.append(el("ol", { class: "ways" }, ...lines.map(([action, line, note]) => el("li", {},
            el("p", { class: "action" }, action), line ? command(line) : undefined, note ? el("p", { class: "note" }, note) : undefined))));
        }
      }
      return el("tr", { class: "opened", role: "row", id: `finding-${item.id}` }, el("td", { role: "cell", colspan: this.columns.length }, inside));
    }

    toggle(row, wanted) {
      const id = Number(row.dataset.id), open = this.opened.has(id), button = row.querySelector(".open");
      if (wanted === open) return;
      if (open) { this.opened.delete(id); row.nextElementSibling.remove(); button.removeAttribute("aria-controls"); } else {
        this.opened.add(id);
        const detail = this.detail(this.items[id]);
        row.after(detail);
        button.setAttribute("aria-controls", detail.id);
      }
      button.setAttribute("aria-expanded", String(!open));
    }

    buttons() { return [...this.body.querySelectorAll(".open")]; }

    focus(number) {
      const buttons = this.buttons();
      if (!buttons.length) return;
      if (buttons[this.active]) buttons[this.active].tabIndex = -1;
      this.active = Math.min(Math.max(number, 0), buttons.length - 1);
      buttons[this.active].tabIndex = 0;
      buttons[this.active].focus();
      buttons[this.active].closest("tr").scrollIntoView({ block: "nearest" });
    }

    clicked(event) {
      const row = event.target.closest("tr.row");
      const selection = getSelection();
      if (!row || (!selection.isCollapsed && row.contains(selection.anchorNode))) return;  // somebody marks text
      const button = row.querySelector(".open");
      this.focus(this.buttons().indexOf(button));
      this.toggle(row);
    }

    pressed(event) {
      const button = event.target.closest(".open");
      if (!button || event.ctrlKey || event.altKey || event.metaKey) return;
      const row = button.closest("tr"), at = this.buttons().indexOf(button), last = this.buttons().length - 1;
      const moves = {
        ArrowDown: () => { if (at === last && this.at + this.size < this.found.length) { this.turn(this.at + this.size); this.focus(0); } else this.focus(at + 1); },
        ArrowUp: () => {
          if (at) this.focus(at - 1);
          else if (this.at) { this.turn(this.at - this.size); this.focus(this.size); } else this.input.focus();
        },
        ArrowRight: () => this.toggle(row, true), ArrowLeft: () => this.toggle(row, false),
        Home: () => this.focus(0), End: () => this.focus(last),
        Escape: () => { this.form.reset(); this.input.focus(); },
      };
      if (moves[event.key]) { event.preventDefault(); moves[event.key](); }
    }

    print(on) {
      if ((this.size === PRINTED) === on) return;
      if (on) { this.before = this.at; this.at = 0; this.size = PRINTED; } else { this.at = this.before; this.size = PAGE; }
      this.draw();
    }
  }

  const box = document.getElementById("findings");
  let findings;
  if (box) {
    const data = document.getElementById("data-findings");
    findings = new Grid(box, JSON.parse(data.textContent));
    data.remove();
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key !== "/" || typing || event.ctrlKey || event.altKey || event.metaKey || !findings) return;
    event.preventDefault();
    findings.input.focus();
  });

  const printing = matchMedia("print");
  const folds = [...document.querySelectorAll("details")];
  let unfolded = [];
  function print(on) {
    if (findings) findings.print(on);
    if (on && !unfolded.length) unfolded = folds.filter((fold) => !fold.open);
    for (const fold of unfolded) fold.open = on;
    if (!on) unfolded = [];
  }
  printing.addEventListener("change", (event) => print(event.matches));
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();

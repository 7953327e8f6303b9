// Filters the grid by system, generation, release and CUDA line, and shows the reason of the cell that was chosen.
// A cell holds two numbers: its reason and its CUDA lines stand once in the page, however many cells share them.
"use strict";
const field = (id) => document.getElementById(id);
const FIELDS = ["system", "generation", "release", "line"];
const shared = JSON.parse(field("shared").textContent);
const grids = Array.from(document.querySelectorAll("table.grid"));
let chosen = null;

function paint() {
  const [system, generation, release, line] = FIELDS.map((id) => field(id).value);
  for (const part of document.querySelectorAll("[data-system]")) part.hidden = part.dataset.system !== system;
  for (const row of document.querySelectorAll("tr[data-generation]")) row.hidden = generation !== "" && row.dataset.generation !== generation;
  for (const grid of grids) {
    const heads = grid.tHead.rows[0].cells;
    for (const row of grid.rows) for (let at = 1; at < heads.length; at += 1) row.cells[at].hidden = release !== "" && heads[at].textContent !== release;
    for (const cell of grid.querySelectorAll("td")) {
      const [state, text] = (cell.dataset.was ||= `${cell.className} ${cell.textContent}`).split(" ");
      const lines = shared.lines[cell.dataset.l] || [];
      const whole = lines.includes(line);
      const part = lines.includes(`${line}-`);
      cell.className = line === "" ? state : whole ? "yes" : part ? "part" : "no";
      cell.textContent = line === "" ? text : whole || part ? line : "–";
    }
  }
  const link = new URLSearchParams();
  for (const id of FIELDS) if (field(id).value && (id !== "system" || asked.has(id))) link.set(id, field(id).value);
  history.replaceState(null, "", link.size ? `#${link}` : location.pathname);
}

function choose(cell) {
  if (chosen) { chosen.removeAttribute("aria-selected"); chosen.tabIndex = -1; }
  chosen = cell;
  cell.setAttribute("aria-selected", "true");
  cell.tabIndex = 0;
  cell.focus({ preventScroll: false });
  const grid = cell.closest("table");
  const head = cell.parentNode.cells[0].textContent;
  field("reason-title").textContent = `PyTorch ${grid.tHead.rows[0].cells[cell.cellIndex].textContent} for ${head} on ${grid.dataset.name}`;
  field("reason").replaceChildren(...shared.why[cell.dataset.w].split("\n").map((text) => {
    const line = document.createElement("li");
    line.textContent = text;
    return line;
  }));
}

// The next cell in a direction that the filters leave visible.
function beside(cell, across, down) {
  let [row, at] = [cell.parentNode, cell.cellIndex];
  do {
    at += across;
    for (let step = 0; step < Math.abs(down); step += 1) row = down > 0 ? row.nextElementSibling : row.previousElementSibling;
    if (!row || at < 1 || at >= row.cells.length) return null;
  } while (row.hidden || row.cells[at].hidden);
  return row.cells[at];
}

for (const grid of grids) {
  const first = grid.querySelector("td");
  if (first) first.tabIndex = 0;
  grid.addEventListener("click", (event) => { const cell = event.target.closest("td"); if (cell) choose(cell); });
  grid.addEventListener("keydown", (event) => {
    const cell = event.target.closest("td");
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1], Enter: [0, 0], " ": [0, 0] }[event.key];
    if (!cell || !step) return;
    event.preventDefault();
    const next = step[0] || step[1] ? beside(cell, ...step) : cell;
    if (next) choose(next);
  });
}
const asked = new URLSearchParams(location.hash.slice(1));
if (!asked.has("system") && /Linux|X11/.test(navigator.userAgent)) field("system").value = "linux";
for (const id of FIELDS) {
  if (asked.has(id)) field(id).value = asked.get(id);
  field(id).addEventListener("change", () => { if (id === "system") asked.set(id, ""); paint(); });
}
paint();

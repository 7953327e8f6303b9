// Filters the grid by generation, release and CUDA line, and shows the reason of the cell that has the focus or a click.
"use strict";
const field = (id) => document.getElementById(id);
const cells = Array.from(document.querySelectorAll("button.cell"), (cell) => ({
  cell, state: cell.dataset.state, text: cell.textContent, lines: (cell.dataset.lines || "").split(" ").filter(Boolean),
}));

function paint() {
  const [generation, release, line] = ["generation", "release", "line"].map((id) => field(id).value);
  for (const row of document.querySelectorAll("tr[data-generation]")) row.hidden = generation !== "" && row.dataset.generation !== generation;
  for (const part of document.querySelectorAll("[data-release]")) part.hidden = release !== "" && part.dataset.release !== release;
  for (const { cell, state, text, lines } of cells) {
    const whole = lines.includes(line);
    const part = lines.includes(`${line}-`);
    cell.className = `cell ${line === "" ? state : whole ? "yes" : part ? "part" : "no"}`;
    cell.textContent = line === "" ? text : whole || part ? line : "–";
  }
  const link = new URLSearchParams();
  for (const [id, value] of Object.entries({ generation, release, line })) if (value) link.set(id, value);
  history.replaceState(null, "", link.size ? `#${link}` : location.pathname);
}

function reason(cell) {
  field("reason-title").textContent = cell.getAttribute("aria-label");
  field("reason").replaceChildren(...cell.dataset.why.split("\n").map((text) => {
    const line = document.createElement("li");
    line.textContent = text;
    return line;
  }));
}

for (const id of ["generation", "release", "line"]) field(id).addEventListener("change", paint);
for (const { cell } of cells) for (const event of ["click", "focus"]) cell.addEventListener(event, () => reason(cell));
const asked = new URLSearchParams(location.hash.slice(1));
for (const id of ["generation", "release", "line"]) if (asked.has(id)) field(id).value = asked.get(id);
if (asked.size) paint();

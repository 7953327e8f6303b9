// Marks the bars whose file or target contains what is typed, and says how long they took together.
"use strict";
const field = document.getElementById("find");
const found = document.getElementById("found");
const bars = Array.from(document.querySelectorAll("svg.timeline rect"), (rect) => ({
  rect, text: rect.querySelector("title").textContent.toLowerCase(),
}));
field.addEventListener("input", () => {
  const wanted = field.value.trim().toLowerCase();
  let count = 0;
  for (const bar of bars) {
    const hit = wanted !== "" && bar.text.includes(wanted);
    bar.rect.classList.toggle("found", hit);
    count += hit;
  }
  found.textContent = wanted ? `${count} of ${bars.length} commands` : "";
});

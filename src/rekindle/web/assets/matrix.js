// Shows one generation, or all.
"use strict";
const filter = document.getElementById("filter");
filter.addEventListener("change", () => {
  for (const row of document.querySelectorAll("tr[data-capability]")) {
    row.hidden = filter.value !== "" && row.dataset.capability !== filter.value;
  }
});

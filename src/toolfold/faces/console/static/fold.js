// Folds and unfolds all fields of a schema at once. Each by itself is a <details>, which needs no script.
"use strict";
(() => {
  document.querySelectorAll(".folding").forEach((one) => { one.hidden = false; });
  document.addEventListener("click", (event) => {
    const button = event.target.closest && event.target.closest("[data-fold]");
    if (!button) return;
    document.getElementById(button.dataset.of).querySelectorAll("details").forEach((one) => { one.open = button.dataset.fold === "open"; });
  });
})();

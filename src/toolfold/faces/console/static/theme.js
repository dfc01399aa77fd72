// Light or dark as the person chose, before anything is painted; without a choice as the system says.
"use strict";
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("toolfold-theme"); } catch { return null; } };
  const apply = (theme) => { if (theme === "light" || theme === "dark") root.dataset.theme = theme; };
  apply(stored());
  document.addEventListener("DOMContentLoaded", () => {
    const here = document.querySelector(".menu [aria-current]");
    if (here) here.parentElement.parentElement.parentElement.scrollLeft = here.offsetLeft - 80;
    const button = document.getElementById("theme");
    if (!button) return;
    button.hidden = false;
    const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const name = () => button.setAttribute("aria-label", dark() ? "Switch to light" : "Switch to dark");
    name();
    button.addEventListener("click", () => {
      apply(dark() ? "light" : "dark");
      try { localStorage.setItem("toolfold-theme", root.dataset.theme); } catch { /* it lasts for this page */ }
      name();
      document.dispatchEvent(new Event("toolfold:theme"));
    });
  });
})();

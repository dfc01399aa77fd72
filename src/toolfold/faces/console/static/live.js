// Tells the parts of a page that are live when there is something new; they load themselves anew.
"use strict";
(() => {
  // What a person opened stays open, and what uPlot drew stays drawn, when the part around it is renewed.
  const callbacks = window.Idiomorph ? Idiomorph.defaults.callbacks : {};
  callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.tagName === "DETAILS");
  callbacks.beforeNodeMorphed = (old, renewed) => {
    if (!old.dataset || !("plot" in old.dataset) || !renewed.dataset) return true;
    old.dataset.plot = renewed.dataset.plot;
    return false;
  };
  const address = document.body.dataset.changes;
  if (!address || !document.querySelector("[hx-trigger*='toolfold:changed']")) return;
  const mark = document.getElementById("live");
  let source = null, lost = false;
  const listen = () => {
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.addEventListener("open", () => {
      // After a gap nobody knows what was missed: the gateway may be another one.
      if (lost && !document.querySelector("[data-hold]")) document.body.dispatchEvent(new Event("toolfold:changed"));
      lost = mark.hidden = false;
    });
    source.addEventListener("error", () => { lost = mark.hidden = true; });
    source.addEventListener("changed", () => {
      // Whoever is about to press something must not lose it.
      if (!document.querySelector("[data-hold]")) document.body.dispatchEvent(new Event("toolfold:changed"));
    });
  };
  const stop = () => { if (source) source.close(); source = null; mark.hidden = true; };
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : listen()));
  addEventListener("pagehide", stop);
  listen();
})();

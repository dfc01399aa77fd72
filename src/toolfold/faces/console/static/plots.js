// Draws each [data-plot] with uPlot, in the colours of the theme, as wide as there is room.
"use strict";
(() => {
  const drawn = new Map();
  const short = (value) => value == null ? "–" : Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  const resolved = (name) => {
    const probe = document.createElement("span");
    probe.className = "probe " + name;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const draw = (element) => {
    const known = drawn.get(element);
    const text = element.dataset.plot;
    const width = Math.max(200, element.clientWidth);
    if (known && known.text === text && known.width === width) return;
    if (known) known.plot.destroy();
    const { labels, data } = JSON.parse(text);
    const ink = resolved("soft"), line = resolved("line");
    const strokes = [resolved("second"), resolved("accent")];
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
    const plot = new uPlot({
      width, height: 190, cursor: { y: false }, legend: { live: true },
      series: [{ value: (_, at) => at == null ? "–" : new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) }, ...labels.map((label, at) => ({
        label, stroke: strokes[at], width: 2, spanGaps: false, points: { show: data[0].length < 40, size: 5 }, value: (_, value) => short(value),
      }))],
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.05)] } },
      axes: [{ ...axis }, { ...axis, size: 52, values: (_, values) => values.map(short) }],
    }, data, element);
    drawn.set(element, { plot, text, width });
  };
  const all = () => {
    for (const [element, known] of drawn) if (!element.isConnected) { known.plot.destroy(); drawn.delete(element); }
    document.querySelectorAll("[data-plot]").forEach(draw);
  };
  document.addEventListener("toolfold:theme", () => { for (const known of drawn.values()) known.text = ""; all(); });
  document.addEventListener("htmx:afterSettle", all);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("toolfold:theme")));
  addEventListener("resize", all);
  all();
})();

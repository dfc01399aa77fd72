"use strict";
for (const form of document.querySelectorAll("form[data-path]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const output = form.querySelector("output");
    const body = form.querySelector("textarea");
    const key = document.getElementById("key").value.trim();
    const headers = key ? { authorization: "Bearer " + key } : {};
    if (body) headers["content-type"] = "application/json";
    const status = document.createElement("p");
    const text = document.createElement("pre");
    const started = performance.now();
    status.textContent = "asking …";
    output.replaceChildren(status);
    try {
      const answer = await fetch("." + form.dataset.path, {
        method: form.dataset.method, headers, body: body ? body.value : undefined,
      });
      const raw = await answer.text();
      status.textContent = `${answer.status} after ${Math.round(performance.now() - started)} ms, ${raw.length} characters`;
      status.className = answer.ok ? "soft" : "bad";
      try { text.textContent = JSON.stringify(JSON.parse(raw), null, 2); } catch { text.textContent = raw; }
      output.append(text);
    } catch (error) {
      status.textContent = String(error);
      status.className = "bad";
    }
  });
}

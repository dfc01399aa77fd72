// A tool dragged onto a category is moved there, as the form beside it does.
"use strict";
(() => {
  const form = document.getElementById("dropped");
  if (!form) return;
  document.addEventListener("dragstart", (event) => {
    const tool = event.target.closest && event.target.closest("[data-drag]");
    if (tool) event.dataTransfer.setData("text/x-toolfold", tool.dataset.drag);
  });
  const target = (event) => event.target.closest && event.dataTransfer.types.includes("text/x-toolfold") && event.target.closest("[data-drop]");
  document.addEventListener("dragover", (event) => {
    const over = target(event);
    document.querySelectorAll(".over").forEach((one) => one !== over && one.classList.remove("over"));
    if (!over) return;
    event.preventDefault();
    over.classList.add("over");
  });
  document.addEventListener("drop", (event) => {
    const over = target(event);
    if (!over) return;
    event.preventDefault();
    form.elements.tool.value = event.dataTransfer.getData("text/x-toolfold");
    form.elements.to.value = over.dataset.drop;
    form.submit();
  });
})();

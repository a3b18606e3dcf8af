/* The submit form: total GPUs split into whole nodes, the draft kept in this browser, Ctrl-Enter. */
"use strict";
(() => {
  const form = document.getElementById("submit-form");
  if (!form) return;
  const KEY = `muster:draft:${form.dataset.draft || ""}`;
  const fields = () => [...form.elements].filter((f) => f.name && f.name !== "csrfmiddlewaretoken" && f.type !== "hidden");
  document.addEventListener("keydown", (event) => { if ((event.ctrlKey || event.metaKey) && event.key === "Enter") { event.preventDefault(); form.requestSubmit(); } });
  form.addEventListener("input", () => {
    sessionStorage.setItem(KEY, JSON.stringify(Object.fromEntries(fields().filter((f) => f.type !== "checkbox").map((f) => [f.name, f.value]))));
    document.getElementById("verdict")?.classList.add("old");
  });
  form.addEventListener("submit", () => sessionStorage.removeItem(KEY));
  document.body.addEventListener("htmx:afterSettle", () => document.getElementById("verdict")?.classList.remove("old"));
  /* 64 → "8 whole nodes of 8", as it is typed. */
  const split = document.getElementById("split"), gpus = form.elements.namedItem("gpus");
  function say() {
    const n = Number(gpus.value), size = Number(split.dataset.size), whole = n / size;
    const text = !n || n < 0 ? "" : n < size ? split.dataset.part : n === size ? split.dataset.one : Number.isInteger(whole) ? split.dataset.whole : "";
    split.textContent = text.replace("{n}", n < size ? n : whole).replace("{size}", size);
  }
  gpus?.addEventListener("input", say);
  const kept = form.dataset.fresh === "yes" && sessionStorage.getItem(KEY);
  if (kept) for (const [name, value] of Object.entries(JSON.parse(kept))) { const f = form.elements.namedItem(name); if (f && "value" in f && value) f.value = value; }
  if (gpus) say();
})();

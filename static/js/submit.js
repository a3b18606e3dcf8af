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
  const kept = form.dataset.fresh === "yes" && sessionStorage.getItem(KEY);
  if (kept) for (const [name, value] of Object.entries(JSON.parse(kept))) { const f = form.elements.namedItem(name); if (f && "value" in f && value) f.value = value; }
})();

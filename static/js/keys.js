/* Keyboard: the palette (/ or Ctrl-K), the key list (?), and rows (j k x e c Enter). */
"use strict";
(() => {
  const palette = document.getElementById("palette");
  if (!palette) return;
  const input = palette.querySelector("input"), list = palette.querySelector("ul");
  let places = [], at = 0;

  function collect() {
    const seen = new Set(), found = [];
    for (const link of document.querySelectorAll(".rail a.to, [data-place]")) {
      const text = (link.dataset.place || link.firstElementChild?.textContent || link.textContent).trim();
      if (seen.has(link.href)) continue;
      seen.add(link.href);
      found.push({ text, kind: link.closest(".group")?.querySelector("h2")?.firstChild.textContent.trim() ?? "", href: link.href });
    }
    for (const row of document.querySelectorAll("tr[data-href]")) found.push({ text: row.dataset.name, kind: row.dataset.id ?? "", href: row.dataset.href });
    return found;
  }
  function draw() {
    const q = input.value.trim(), words = q.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = places.filter((p) => words.every((w) => `${p.text} ${p.kind}`.toLowerCase().includes(w))).slice(0, 12);
    if (q) hits.push({ text: input.dataset.found.replace("{q}", q), kind: "", href: /^job_[0-9a-z]+$/i.test(q) ? `${input.dataset.search}${q}/` : `${input.dataset.search}?search=${encodeURIComponent(q)}` });
    at = Math.min(at, Math.max(hits.length - 1, 0));
    list.replaceChildren(...hits.map((hit, index) => {
      const item = document.createElement("li"), kind = document.createElement("span");
      item.id = `palette-${index}`; item.setAttribute("role", "option"); item.setAttribute("aria-selected", String(index === at));
      item.dataset.href = hit.href; kind.className = "k"; kind.textContent = hit.kind;
      item.append(hit.text, kind);
      return item;
    }));
    input.setAttribute("aria-activedescendant", hits.length ? `palette-${at}` : "");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }
  function go(item) { if (item) location.href = item.dataset.href; }
  function open() { places = collect(); at = 0; input.value = ""; if (!palette.open) palette.showModal(); draw(); input.focus(); }
  input.addEventListener("input", () => { at = 0; draw(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); at = Math.max(0, Math.min(list.children.length - 1, at + (event.key === "ArrowDown" ? 1 : -1))); draw(); }
    if (event.key === "Enter") { event.preventDefault(); go(list.children[at]); }
  });
  list.addEventListener("click", (event) => go(event.target.closest("li")));
  palette.addEventListener("toggle", () => palette.open && open());
  document.addEventListener("click", (event) => { if (event.target.closest('[data-open="palette"]')) open(); });

  const rows = () => [...document.querySelectorAll("tr[data-href]")];
  function move(by) {
    const all = rows(), here = all.findIndex((row) => row.classList.contains("at"));
    const next = all[Math.max(0, Math.min(all.length - 1, here < 0 ? (by > 0 ? 0 : all.length - 1) : here + by))];
    all[here]?.classList.remove("at");
    next?.classList.add("at");
    next?.querySelector("a")?.focus({ preventScroll: true });
    next?.scrollIntoView({ block: "nearest" });
  }
  const current = () => document.querySelector("tr.at");
  const turn = (rel) => [...document.querySelectorAll(`a[rel=${rel}]`)].find((a) => a.offsetParent)?.click();
  const row = {
    j: () => move(1), k: () => move(-1),
    x: () => current()?.querySelector("input[type=checkbox]")?.click(),
    e: () => { const href = (current()?.dataset.href ?? document.body.dataset.job); if (href) location.href = `${href}#why`; },
    c: () => (current() ? current().querySelector("[data-cancel]") : document.querySelector("[data-cancel]"))?.click(),
    n: () => { const to = document.querySelector("[data-new]"); if (to) location.href = to.href; },
    "[": () => turn("prev"), "]": () => turn("next"),
    r: () => document.dispatchEvent(new CustomEvent("muster:news")),
    Enter: () => { const to = current(); if (to && document.activeElement === document.body) location.href = to.dataset.href; },
  };
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || document.querySelector("dialog[open]")) return;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); open(); return; }
    if (event.ctrlKey || event.metaKey || event.target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    if (event.key === "/") { event.preventDefault(); open(); }
    else if (event.key === "?") { event.preventDefault(); document.getElementById("keys").showModal(); }
    else row[event.key]?.();
  });

  /* The bulk bar: shown while a box is ticked, says how many. */
  document.addEventListener("change", (event) => {
    if (!event.target.matches("input[type=checkbox][name=job], [data-all]")) return;
    const boxes = [...document.querySelectorAll("input[type=checkbox][name=job]")];
    if (event.target.matches("[data-all]")) for (const box of boxes) box.checked = event.target.checked;
    const n = boxes.filter((box) => box.checked).length, bar = document.getElementById("bulk");
    if (!bar) return;
    bar.hidden = n === 0;
    bar.querySelector("[data-n]").textContent = n;
  });
})();

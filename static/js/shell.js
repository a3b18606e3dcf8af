/* Shell: theme, time zone, rail, dialogs, confirmation, toasts, form odds and ends. Loaded first,
   without defer: the theme is on <html> from the server, only the zone cookie is set here. */
"use strict";
(() => {
  const keep = (name, value) => { document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=lax`; };
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && !document.cookie.includes(`tz=${zone}`)) keep("tz", zone);

  document.addEventListener("click", (event) => {
    const at = (selector) => event.target.closest(selector);
    const theme = at("[data-theme-to]"), open = at("[data-open]"), toggle = at(".rail-toggle"), copy = at("[data-copy]");
    if (theme) {
      document.documentElement.dataset.theme = theme.dataset.themeTo;
      keep("theme", theme.dataset.themeTo);
      for (const other of document.querySelectorAll("[data-theme-to]")) other.setAttribute("aria-pressed", String(other.dataset.themeTo === theme.dataset.themeTo));
    }
    if (open) document.getElementById(open.dataset.open)?.showModal();
    if (toggle) toggle.setAttribute("aria-expanded", String(toggle.closest(".rail").classList.toggle("open")));
    if (copy) navigator.clipboard?.writeText(document.querySelector(copy.dataset.copy)?.textContent.trim() ?? "").then(() => say(copy.dataset.done));
    const step = at("[data-step]");
    if (step) {
      const input = document.getElementById(step.dataset.for), by = Number(step.dataset.step);
      input.value = String(Math.max(Number(input.min || 0), Number(input.value || 0) + by));
      input.dispatchEvent(new Event("input", { bubbles: true }));
    }
    const fill = at("[data-fill]"), field = fill && document.querySelector(fill.dataset.fill);
    if (field) { field.value = fill.dataset.value; field.dispatchEvent(new Event("input", { bubbles: true })); field.focus(); }
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    at("[data-close]")?.closest("dialog")?.close();
    if (event.target instanceof HTMLDialogElement) event.target.close();
  });

  /* <form data-confirm="title" data-confirm-text="…" data-confirm-yes="…">: asks before it is sent. */
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.dataset.confirm || form.dataset.sure) return;
    event.preventDefault(); event.stopImmediatePropagation();
    ask(form.dataset.confirm, form.dataset.confirmText, form.dataset.confirmYes).then((sure) => {
      if (!sure) return;
      form.dataset.sure = "1"; form.requestSubmit(event.submitter ?? undefined); delete form.dataset.sure;
    });
  }, true);
  function ask(title, text, yes) {
    const dialog = document.getElementById("confirm");
    document.getElementById("confirm-title").textContent = title;
    document.getElementById("confirm-text").textContent = text ?? "";
    document.getElementById("confirm-yes").textContent = yes ?? "OK";
    dialog.returnValue = ""; dialog.showModal();
    return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
  }
  document.addEventListener("htmx:confirm", (event) => {
    const text = event.detail.question;
    if (!text) return;
    event.preventDefault();
    ask(text, event.detail.elt.dataset.confirmText, event.detail.elt.dataset.confirmYes).then((sure) => sure && event.detail.issueRequest(true));
  });

  /* A toast says what has happened; the region is polite and holds three at most. */
  function say(text, kind = "info") {
    const region = document.getElementById("toasts");
    if (!text || !region) return;
    const toast = document.createElement("div");
    toast.className = "toast";
    toast.innerHTML = `<svg class="glyph" aria-hidden="true"><use href="#s-${kind}"/></svg><span></span>`;
    toast.lastElementChild.textContent = text;
    region.append(toast);
    while (region.children.length > 3) region.firstElementChild.remove();
    setTimeout(() => toast.remove(), 6000);
  }
  document.addEventListener("muster:say", (event) => say(event.detail.text ?? event.detail.value, event.detail.kind));
  /* What somebody asked for and the server did not hear is told; what the page fetches by itself shows in its badge. */
  document.addEventListener("htmx:sendError", (event) => event.detail.elt.matches("[data-live-poll]") || say(document.body.dataset.down, "node_failure"));
  document.addEventListener("htmx:responseError", (event) => event.detail.xhr.getResponseHeader("HX-Trigger") || say(`${event.detail.xhr.status} ${event.detail.xhr.statusText}`, "failed"));

  /* What the reader has opened, and where the focus is, survives a panel that is fetched anew. */
  let opened = [], focused = "";
  document.addEventListener("htmx:beforeSwap", (event) => {
    const target = event.detail.target;
    opened = [...target.querySelectorAll("details[id][open]")].map((at) => at.id);
    focused = target.contains(document.activeElement) ? document.activeElement.id : "";
  });
  document.addEventListener("htmx:afterSettle", () => {
    for (const id of opened) { const at = document.getElementById(id); if (at) at.open = true; }
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    opened = []; focused = "";
  });

  document.addEventListener("DOMContentLoaded", () => document.querySelector("[data-focus]")?.focus());
  document.addEventListener("change", (event) => { if (event.target.closest("[data-submit-on-change]")) event.target.form.requestSubmit(); });
  window.muster = { say, ask, keep };
})();

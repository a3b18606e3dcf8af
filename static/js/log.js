/* The log view: follows the end while it is in sight, keeps its place when you scroll up, finds. */
"use strict";
(() => {
  const set = (log, on) => {
    log.dataset.follow = on ? "yes" : "no";
    log.querySelector("[data-follow][aria-pressed]")?.setAttribute("aria-pressed", String(on));
    const pre = log.querySelector("pre");
    if (on && pre) pre.scrollTop = pre.scrollHeight;
  };
  const filter = (log) => {
    const q = (log.querySelector("input[type=search]")?.value ?? "").toLowerCase();
    for (const line of log.querySelectorAll("[data-line]")) line.hidden = Boolean(q) && !line.textContent.toLowerCase().includes(q);
  };
  document.addEventListener("htmx:afterSwap", () => {
    for (const log of document.querySelectorAll(".log")) { filter(log); set(log, log.dataset.follow !== "no"); }
  });
  document.addEventListener("scroll", (event) => {
    const log = event.target.closest?.(".log");
    if (log && event.target.matches("pre")) {
      const near = event.target.scrollTop + event.target.clientHeight >= event.target.scrollHeight - 24;
      if (near !== (log.dataset.follow !== "no")) set(log, near);
    }
  }, { capture: true, passive: true });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-follow]"), log = button?.closest(".log");
    if (log) set(log, log.dataset.follow === "no");
  });
  document.addEventListener("input", (event) => { const log = event.target.closest?.(".log"); if (log) filter(log); });
})();

/* The log view: follows the end while it is in sight, keeps its place when you scroll up.
   The server sends escaped <span>s and the next cursor; see templates/scheduler/_log_lines.html. */
"use strict";
(() => {
  document.addEventListener("htmx:afterSwap", (event) => {
    const log = event.detail.target.closest?.(".log");
    if (log && log.dataset.follow !== "no") { const pre = log.querySelector("pre"); pre.scrollTop = pre.scrollHeight; }
  });
  for (const log of document.querySelectorAll(".log")) {
    const pre = log.querySelector("pre"), find = log.querySelector("input[type=search]"), follow = log.querySelector("[data-follow]");
    const set = (on) => { log.dataset.follow = on ? "yes" : "no"; follow?.setAttribute("aria-pressed", String(on)); if (on) pre.scrollTop = pre.scrollHeight; };
    pre?.addEventListener("scroll", () => set(pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 24), { passive: true });
    follow?.addEventListener("click", () => set(log.dataset.follow !== "yes"));
    find?.addEventListener("input", () => {
      const q = find.value.toLowerCase();
      for (const line of pre.querySelectorAll("[data-line]")) line.hidden = Boolean(q) && !line.textContent.toLowerCase().includes(q);
    });
    set(true);
  }
})();

/* One socket per page: the browser's half of docs/live.md.
   <body data-live-topics="jobs:research map:demo" data-live-seq="4711"> asks for it. */
"use strict";
(() => {
  const topics = (document.body.dataset.liveTopics || "").split(" ").filter(Boolean);
  if (!topics.length || !window.WebSocket) return;
  const badge = document.getElementById("live-badge"), pill = document.getElementById("live-news");
  const HEARTBEAT = 40000, POLL = 10000, SIGNED_OUT = new Set([4401, 4403]);
  let seq = Number(document.body.dataset.liveSeq || 0), socket, tries = 0, heard = Date.now(), state = "catching", news = 0, out = false, timer;

  function show(next) {
    state = next;
    if (!badge) return;
    const stale = Math.round((Date.now() - heard) / 1000);
    const words = badge.dataset[next].replace("{n}", window.muster.words(stale));
    if (badge.dataset.state !== next) badge.dataset.state = next;
    /* Seconds tick silently: only a change of state is announced. */
    badge.setAttribute("role", next === "stale" ? "presentation" : "status");
    if (badge.lastElementChild.textContent !== words) badge.lastElementChild.textContent = words;
  }

  function connect() {
    clearTimeout(timer);
    socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live/`);
    const mine = socket;
    mine.onopen = () => mine.send(JSON.stringify({ type: "subscribe", topics, after: seq }));
    mine.onmessage = (event) => { if (mine === socket) receive(JSON.parse(event.data)); };
    mine.onclose = (event) => {
      if (mine !== socket) return;
      if (SIGNED_OUT.has(event.code)) { out = true; show("out"); return; }
      const wait = Math.min(30000, 1000 * 2 ** Math.min(tries++, 5)) * (0.5 + Math.random());
      timer = setTimeout(connect, wait);
      if (state === "live") show("catching");
    };
  }

  function receive(message) {
    heard = Date.now(); tries = 0;
    if (message.type === "resync") { reload(); return; }
    if (message.type === "patch") message.fragments.forEach(apply);
    if (message.type === "svg") message.changes.forEach(([id, css]) => document.getElementById(id)?.setAttribute("class", css));
    if (message.type === "count") Object.entries(message.counts).forEach(count);
    if (typeof message.seq === "number") seq = Math.max(seq, message.seq);
    show("live");
    if (message.type !== "ping") document.body.dispatchEvent(new CustomEvent("muster:live", { detail: message }));
  }

  function count([key, value]) {
    for (const at of document.querySelectorAll(`[data-count="${CSS.escape(key)}"]`)) at.textContent = value === 0 && "zero" in at.dataset ? "" : value;
  }

  function parse(html) {
    const template = document.createElement("template");
    template.innerHTML = html.trim();
    return template.content.firstElementChild;
  }

  function apply({ target, html, mode }) {
    const at = document.querySelector(target);
    if (mode === "append") {
      const fresh = parse(html), there = fresh?.id && document.getElementById(fresh.id);
      if (there) return swap(there, fresh);
      if (!at || !fresh) return missed();
      at.append(fresh); window.htmx?.process(fresh);
      return undefined;
    }
    if (!at) return missed();
    if (mode === "remove") return remove(at);
    return swap(at, parse(html));
  }

  /* What the page must not lose: focus, a ticked box, the keyboard's row, what is being typed. */
  function swap(old, fresh) {
    if (!fresh) return;
    const focus = old.contains(document.activeElement) ? document.activeElement : null;
    if (focus?.matches("input:not([type=checkbox]), textarea, select") || old.querySelector("details[open].menu, dialog[open]")) return;
    const key = focus && (focus.id ? `#${CSS.escape(focus.id)}` : focus.dataset.key ? `[data-key="${CSS.escape(focus.dataset.key)}"]` : null);
    if (old.classList.contains("at")) fresh.classList.add("at");
    for (const box of old.querySelectorAll("input[type=checkbox]:checked")) {
      const twin = fresh.querySelector(`input[type=checkbox][value="${CSS.escape(box.value)}"]`);
      if (twin) twin.checked = true;
    }
    if (old.dataset.state !== fresh.dataset.state) fresh.classList.add("fresh");
    old.replaceWith(fresh);
    window.htmx?.process(fresh);
    if (focus === old) fresh.focus({ preventScroll: true });
    else if (key) fresh.querySelector(key)?.focus({ preventScroll: true });
  }

  function remove(at) {
    const list = at.closest("table, ul, .map");
    if (list?.matches(":hover, :focus-within")) at.classList.add("gone"); else at.remove();
    missed();
  }

  function missed() {
    const list = document.querySelector("[data-live-list]");
    if (!list || !pill) return;
    news += 1;
    const busy = list.matches(":hover, :focus-within") || list.querySelector("input:checked");
    if (!busy && window.scrollY < 200) { later(); return; }
    pill.hidden = false;
    pill.textContent = (news === 1 ? pill.dataset.one : pill.dataset.many).replace("{n}", news);
  }
  let soon;
  function later() { soon ??= setTimeout(() => { soon = undefined; refresh(); }, 800); }

  /* Load the list again through its own address; everything else stays. */
  function refresh() {
    news = 0;
    if (pill) pill.hidden = true;
    for (const list of document.querySelectorAll("[data-live-list]")) window.htmx?.trigger(list, "muster:refresh");
  }
  function reload() {
    if (document.activeElement?.matches("input, textarea, select")) { show("catching"); refresh(); poll(); return; }
    location.reload();
  }
  function poll() { for (const at of document.querySelectorAll("[data-live-poll]")) window.htmx?.trigger(at, "muster:refresh"); }

  pill?.addEventListener("click", refresh);
  document.addEventListener("muster:news", refresh);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && socket.readyState > 1 && !out) connect(); });
  setInterval(() => {
    if (out) return;
    const quiet = Date.now() - heard;
    if (quiet > HEARTBEAT) {
      show("stale");
      if (socket.readyState === WebSocket.OPEN) socket.close(4000);
    } else if (socket.readyState !== WebSocket.OPEN && quiet > 5000) show("stale");
  }, 1000);
  setInterval(() => { if (state === "stale" && !document.hidden) poll(); }, POLL);
  connect();
})();

/* Keeps <time data-since> and <time data-until> fresh, in the same words as the `duration` filter. */
"use strict";
(() => {
  const [inS, inMin, inH, inD, inDays = inD] =
    (document.body.dataset.units || "{n} s|{n} min|{h} h {m}|{d} d {h} h|{d} d").split("|");
  const put = (text, values) => text.replace(/{(\w)}/g, (_, key) => values[key]);
  function words(seconds) {
    const s = Math.max(0, Math.floor(seconds));
    if (s < 60) return put(inS, { n: s });
    if (s < 3600) return put(inMin, { n: Math.floor(s / 60) });
    if (s < 86400) return put(inH, { h: Math.floor(s / 3600), m: String(Math.floor(s % 3600 / 60)).padStart(2, "0") });
    const h = Math.floor(s % 86400 / 3600);
    return put(h ? inD : inDays, { d: Math.floor(s / 86400), h });
  }
  function tick() {
    const now = Date.now();
    for (const at of document.querySelectorAll("time[data-since], time[data-until]")) {
      const gap = (now - Date.parse(at.dateTime)) / 1000, text = words("since" in at.dataset ? gap : -gap);
      if (at.textContent !== text) at.textContent = text;
    }
  }
  window.muster.words = words;
  setInterval(() => document.hidden || tick(), 1000);
})();

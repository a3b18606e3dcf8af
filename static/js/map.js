/* The map: arrow keys inside a leaf, hover shows a node's facts, ?job= and filters dim the rest. */
"use strict";
(() => {
  const map = document.querySelector(".map");
  if (!map) return;
  const nodes = () => [...map.querySelectorAll("a.n")];
  map.addEventListener("keydown", (event) => {
    const here = event.target.closest("a.n"), steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8, Home: -1e6, End: 1e6 };
    if (!here || !(event.key in steps)) return;
    event.preventDefault();
    const all = nodes(), to = all[Math.max(0, Math.min(all.length - 1, all.indexOf(here) + steps[event.key]))];
    here.setAttribute("tabindex", "-1"); to.setAttribute("tabindex", "0"); to.focus();
  });
  /* The node under the pointer or the focus, in two lines fetched fresh: never an old number. */
  const said = document.getElementById("map-said");
  let wait, last;
  function brief(name) {
    if (name === last) return;
    last = name; clearTimeout(wait);
    wait = setTimeout(() => window.htmx.ajax("GET", map.dataset.brief.replace("/-/", `/${encodeURIComponent(name)}/`), { target: said, swap: "innerHTML" }), 120);
  }
  for (const kind of ["mouseover", "focusin"]) map.addEventListener(kind, (event) => {
    const node = event.target.closest?.("a.n");
    if (node && said) brief(node.dataset.node);
  });
  document.body.addEventListener("muster:live", () => { const name = last; last = undefined; if (name) brief(name); });
  /* A job named in the list beside the map lights up its nodes. */
  document.addEventListener("mouseover", (event) => {
    const job = event.target.closest?.("[data-nodes]");
    const wanted = job ? new Set(job.dataset.nodes.split(" ")) : null;
    for (const node of nodes()) {
      node.classList.toggle("dim-out", Boolean(wanted) && !wanted.has(node.dataset.node));
      node.classList.toggle("hit", Boolean(wanted?.has(node.dataset.node)));
    }
  });
})();

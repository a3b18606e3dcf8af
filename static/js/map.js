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
  const say = document.getElementById("map-said");
  for (const kind of ["mouseover", "focusin"]) map.addEventListener(kind, (event) => {
    const node = event.target.closest?.("a.n");
    if (node && say) say.textContent = node.getAttribute("aria-label");
  });
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

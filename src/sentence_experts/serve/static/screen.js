// The papers to read next, by what was taught, and how many relevant ones may be left.

import {fill, find, make, title} from "./dom.js";
import {facts} from "./lists.js";
import {firstOf, mark, markButtons, showMarks} from "./teach.js";

const ALL = {query: null, like: []}; // judged against nothing but each other
let shown = [];

function item(paper, n) {
  return make("li", {"data-number": n}, make("h3.title", {dir: "auto", tabindex: "-1"}, title(paper)), facts(paper),
    paper.sampled === "yes" && make("p.hint", {}, "of the random sample"), make("p.abstract", {dir: "auto"}, paper.abstract ?? "No abstract."),
    markButtons(paper, ["Relevant", "Not relevant"], ALL));
}

/** Open the list; `change` asks the server for it. */
export function openScreen(page, change) {
  const list = find("screen-list");
  const next = async draw => {
    const found = await change("/screen", {on: firstOf(page), draw});
    fill(find("screen-said"), found ? `${found.verdict}.` : find("teach-said").textContent);
    if (!found) return;
    shown = found.papers;
    fill(list, shown.map(item));
    showMarks();
    list.querySelector(".title")?.focus();
  };
  find("screen-next").onclick = () => next(0);
  find("screen-draw").onclick = () => find("screen-size").reportValidity() && next(find("screen-size").valueAsNumber);
  list.onkeydown = async event => {
    const at = event.target.closest("[data-number]"), similar = {s: true, n: false}[event.key.toLowerCase()];
    if (similar === undefined || !at || event.ctrlKey || event.metaKey || event.altKey) return;
    (at.nextElementSibling?.querySelector(".title") ?? find("screen-next")).focus();
    await mark(shown[at.dataset.number], similar, ALL);
  };
  page.openDialog("screen");
  return next(0);
}

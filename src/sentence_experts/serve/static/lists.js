// The lists of all routes, side by side.

import {fill, make, marked, percent, short, title} from "./dom.js";
import {keepButton} from "./kept.js";

const WIDTH = 250; // of a column at least, in pixels

export function showLists(root, answer, page, canGrow) {
  const labels = new Map(answer.routes.map(route => [route.name, route.label]));
  const columns = answer.routes.map((route, n) => column(route, answer, page, labels, n));
  const before = root.querySelector(".route.shown")?.dataset.route;
  const shown = columns.find(each => each.dataset.route === before) ?? columns[0];
  const choose = name => {
    for (const each of columns) each.classList.toggle("shown", each.dataset.route === name);
  };
  const pick = answer.routes.length > 1 && make("label.phone", {}, "List of ",
    make("select", {onchange: event => choose(event.target.value)}, answer.routes.map(route =>
      make("option", {value: route.name, selected: route.name === shown.dataset.route}, route.label))));
  fill(root, pick, columns);
  choose(shown.dataset.route);
  const grow = canGrow && answer.routes.some(route => route.hits.length);
  root.parentNode.querySelector(".more")?.remove();
  if (grow) root.append(make("button.more", {type: "button", onclick: page.more}, "More papers"));
  arrange(root);
}

/** As many columns as have room, in rows of about one length. */
export function arrange(root) {
  const routes = root.querySelectorAll(".route").length, room = root.clientWidth;
  if (!routes || !room) return;
  const rows = Math.ceil(routes / Math.max(Math.floor((room + 32) / (WIDTH + 32)), 1));
  const phone = matchMedia("(max-width: 44rem)").matches;
  root.style.setProperty("--columns", phone ? 1 : Math.ceil(routes / rows));
}

function column(route, answer, page, labels, n) {
  const alone = route.hits.filter(hit => hit.only).length;
  const heading = make("h2", {id: `route-${n}`}, make("span.dot", {"aria-hidden": "true"}), make("bdi", {}, route.label),
    answer.routes.length > 1 && make("small", {}, alone ? `${alone} only here` : "none of its own"));
  const list = make("ol", {}, route.hits.map(hit => card(hit, route, answer, page, labels)));
  list.addEventListener("keydown", move);
  return make(`section.route.${page.colour(route.name)}`, {"data-route": route.name, "aria-labelledby": `route-${n}`}, heading,
    route.hits.length ? list : make("p.none", {}, "No paper passes the filters."));
}

function card(hit, route, answer, page, labels) {
  const paper = answer.papers[hit.paper];
  const hint = `nearer than ${percent(hit.percentile)} of the papers; cosine ${hit.score.toFixed(3)}`;
  const item = make("li.hit", {"data-paper": hit.paper, "data-route": route.name},
    make("span.rank", {title: hint}, hit.rank),
    make("div", {},
      make("h3", {}, make("button.title", {type: "button", dir: "auto", onclick: () => page.open(paper, route.name)}, title(paper))),
      facts(paper, percent(hit.percentile), hint),
      make("p.best", {dir: "auto", hidden: true}),
      make("div.under", {}, moves(hit, route, paper, labels, page),
        make("span.do", {}, keepButton(paper),
          make("button.quiet", {type: "button", "aria-description": title(paper).slice(0, 200), onclick: () => page.like(paper)}, "More like this")))));
  const light = on => () => {
    for (const each of document.querySelectorAll(`#lists [data-paper="${hit.paper}"]`)) each.classList.toggle("same", on && answer.routes.length > 1);
  };
  for (const [name, on] of [["mouseenter", true], ["focusin", true], ["mouseleave", false], ["focusout", false]]) item.addEventListener(name, light(on));
  return item;
}

export function facts(paper, share, hint) {
  const parts = [paper.year, paper.journal && paper.journal.slice(0, 80)].filter(Boolean);
  return make("p.facts", {dir: "auto"}, paper.retracted && make("span.retracted", {}, "Retracted "), parts.join(" · "),
    share && make("span", {title: hint}, `${parts.length ? " · " : ""}${share}`));
}

/** Where the paper stands under the other routes. */
function moves(hit, route, paper, labels, page) {
  const others = [...labels].filter(([name]) => name !== route.name);
  if (!others.length) return null;
  const cells = others.map(([name, label]) => {
    const rank = paper.ranks[name]?.rank;
    const text = rank ? `rank ${rank} under ${label}` : `not under ${label}`;
    const cell = make(`span.${page.colour(name)}`, {title: text}, make("span.dot", {"aria-hidden": "true"}),
      make("span.unseen", {}, text), make("span", {"aria-hidden": "true"}, rank ? short(rank) : "–"));
    if (!rank || rank > 10 * hit.rank + 10) cell.classList.add("far");
    return cell;
  });
  return [hit.only && make("span.only", {}, "only here"), make("span.moves", {}, cells)];
}

/** The best sentence of a paper under a route, once it is known. */
export function showSentence(root, route, paper, place) {
  for (const item of root.querySelectorAll(`[data-route="${CSS.escape(route)}"].hit`)) {
    if (item.querySelector(".keep").dataset.id !== paper.paper_id) continue;
    const sentence = [...place.passage ?? paper.abstract].slice(place.start, place.end).join("");
    const line = item.querySelector(".best");
    fill(line, ...marked(sentence.length > 400 ? `${sentence.slice(0, 400)}…` : sentence, place.terms ?? paper.terms));
    line.hidden = false;
  }
}

/** Arrow keys move between papers, in a list and across lists. */
function move(event) {
  const item = event.target.closest(".hit");
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key], side = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (!item || event.altKey || event.ctrlKey || event.metaKey || (!step && !side)) return;
  const section = item.closest(".route"), items = [...section.querySelectorAll(".hit")], at = items.indexOf(item);
  let target = step ? items[at + step] : null;
  if (side) {
    const sections = [...document.querySelectorAll("#lists .route")].filter(each => each.getClientRects().length);
    const beside = sections[sections.indexOf(section) + side]?.querySelectorAll(".hit") ?? [];
    target = beside[Math.min(at, beside.length - 1)];
  }
  if (!target) return;
  event.preventDefault();
  target.querySelector(".title").focus();
  target.scrollIntoView({block: "nearest"});
}

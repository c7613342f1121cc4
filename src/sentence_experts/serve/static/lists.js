// The lists of all routes, side by side.

import {fill, make, marked, short, title} from "./dom.js";
import {keepButton} from "./kept.js";
import {learned, markButtons} from "./teach.js";

const WIDTH = 250; // of a column at least, in pixels
const SAME = 0.8; // share of papers in common from which lists are folded into one

/** Routes in groups of nearly the same papers: [[route, ...], ...]. */
function grouped(routes) {
  const groups = [];
  for (const route of routes) {
    const papers = new Set(route.hits.map(hit => hit.paper));
    const alike = ([lead]) => papers.size && lead.hits.filter(hit => papers.has(hit.paper)).length >= SAME * Math.max(lead.hits.length, papers.size);
    const group = groups.find(alike);
    if (group) group.push(route);
    else groups.push([route]);
  }
  return groups;
}

/** Show the lists; returns the number of columns. */
export function showLists(root, answer, page, canGrow, unfolded) {
  const labels = new Map(answer.routes.map(route => [route.name, route.label]));
  const groups = grouped(answer.routes), parts = unfolded ? answer.routes.map(route => [route]) : groups;
  const columns = parts.map(([route, ...others], n) => column(route, others, answer, page, labels, n));
  const before = root.querySelector(".route.shown")?.dataset.route;
  const shown = columns.find(each => each.dataset.route === before) ?? columns[0];
  const choose = name => {
    for (const each of columns) each.classList.toggle("shown", each.dataset.route === name);
  };
  const pick = columns.length > 1 && make("label.phone", {}, "List of ",
    make("select", {onchange: event => choose(event.target.value)}, parts.map(([route, ...others]) =>
      make("option", {value: route.name, selected: route.name === shown.dataset.route}, [route, ...others].map(each => each.label).join(", ")))));
  const fold = groups.length < answer.routes.length && make("button.quiet.fold", {type: "button", onclick: page.unfold},
    unfolded ? "Fold lists of nearly the same papers" : `Show all ${answer.routes.length} lists`);
  fill(root, pick, fold, columns);
  choose(shown.dataset.route);
  const grow = canGrow && answer.routes.some(route => route.hits.length);
  root.parentNode.querySelector(".more")?.remove();
  if (grow) root.append(make("button.more", {type: "button", onclick: page.more}, "More papers"));
  arrange(root);
  return columns.length;
}

/** As many columns as have room, in rows of about one length. */
export function arrange(root) {
  const routes = root.querySelectorAll(".route").length, room = root.clientWidth;
  if (!routes || !room) return;
  const rows = Math.ceil(routes / Math.max(Math.floor((room + 32) / (WIDTH + 32)), 1));
  const phone = matchMedia("(max-width: 44rem)").matches;
  root.style.setProperty("--columns", phone ? 1 : Math.ceil(routes / rows));
}

function column(route, others, answer, page, labels, n) {
  const alone = route.hits.filter(hit => hit.only).length;
  const weak = route.hits.length && route.hits.every(hit => hit.closeness === "weak");
  const names = [route, ...others].map(each => [make(`span.dot.${page.colour(each.name)}`, {"aria-hidden": "true"}),
    make(each === route ? "bdi" : "bdi.other", {}, each.label)]);
  const heading = make("h2", {id: `route-${n}`}, names.flat(),
    answer.routes.length > 1 && make("small", {}, others.length ? `${others.length + 1} routes, nearly the same papers` : alone ? `${alone} only here` : "all in other lists too"));
  const list = make("ol", {}, route.hits.map(hit => card(hit, route, answer, page, labels)));
  list.addEventListener("keydown", move);
  return make(`section.route.${page.colour(route.name)}`, {"data-route": route.name, "aria-labelledby": `route-${n}`}, heading,
    [route, ...others].map(each => learned(each.name)),
    weak && !answer.nothing_close && make("p.hint", {}, "Nothing is close under this route."),
    route.hits.length ? list : make("p.none", {}, "No paper passes the filters."));
}

function card(hit, route, answer, page, labels) {
  const paper = answer.papers[hit.paper];
  const hint = `cosine ${hit.score.toFixed(3)}, ${Math.abs(hit.nearness).toFixed(1)} standard deviations ${hit.nearness < 0 ? "below" : "above"} that of unrelated texts`;
  const item = make("li.hit", {"data-paper": hit.paper, "data-route": route.name},
    make("span.rank", {title: hint}, hit.rank),
    make("div", {},
      make("h3", {}, make("button.title", {type: "button", dir: "auto", onclick: () => page.open(paper, route.name)}, title(paper))),
      facts(paper, hit.closeness, hint),
      make("p.best", {dir: "auto", hidden: true}),
      make("div.under", {}, mostly(hit, route, page), moves(hit, route, paper, labels, page),
        cited(paper),
        make("span.do", {}, markButtons(paper), keepButton(paper),
          make("button.quiet", {type: "button", "aria-description": title(paper).slice(0, 200), onclick: () => page.like(paper)}, "More like this")))));
  const light = on => () => {
    for (const each of document.querySelectorAll(`#lists [data-paper="${hit.paper}"]`)) each.classList.toggle("same", on && answer.routes.length > 1);
  };
  for (const [name, on] of [["mouseenter", true], ["focusin", true], ["mouseleave", false], ["focusout", false]]) item.addEventListener(name, light(on));
  return item;
}

export function facts(paper, closeness, hint) {
  const number = `${paper.volume ?? ""}${paper.issue ? `(${paper.issue})` : ""}${paper.pages ? `:${paper.pages}` : ""}`;
  const source = [paper.journal?.slice(0, 80), number].filter(Boolean).join(" ");
  const parts = [paper.by, paper.year, source].filter(Boolean);
  const kind = !["article", "review", null].includes(paper.kind ?? null);
  return make("p.facts", {dir: "auto"}, closeness && make(`span.near.${closeness}`, {title: hint}, closeness),
    paper.retracted && make("span.retracted", {}, "Retracted "), kind && make("span.kind", {}, `${paper.kind} `), parts.join(" · "),
    paper.doi && safe(paper) && [parts.length > 0 && " · ", make("a", {href: safe(paper), target: "_blank", rel: "noopener noreferrer"}, "DOI")],
    paper.entry && [" · ", make("a", {href: `zotero://select/${paper.entry[0] === "@" ? "items" : "library/items"}/${encodeURIComponent(paper.entry).replace("%40", "@")}`,
      title: `Select ${paper.entry} in Zotero${paper.entry[0] === "@" ? " (with Better BibTeX)" : ""}`}, "Zotero")]);
}

export const safe = paper => (paper.link?.startsWith("https://") ? paper.link : null);

function cited(paper) {
  const counts = [paper.cites && `cites ${paper.cites}`, paper.cited_by && `cited by ${paper.cited_by}`].filter(Boolean);
  return counts.length > 0 && make("span", {title: "within this corpus"}, counts.join(", "));
}

/** The route of a blend that found the paper. */
function mostly(hit, route, page) {
  if (!hit.route) return null;
  return make(`span.by.${page.colour(`${route.name.split(":")[0]}:${hit.route}`)}`, {title: "the route that contributed most"},
    make("span.dot", {"aria-hidden": "true"}), make("bdi", {}, hit.route));
}

/** Where the paper stands under the other routes. */
function moves(hit, route, paper, labels, page) {
  const others = [...labels].filter(([name]) => name !== route.name);
  if (!others.length) return null;
  const cells = others.map(([name, label]) => {
    const rank = paper.ranks[name]?.rank;
    const text = rank ? `rank ${rank} under ${label}` : paper.ranks[name] ? `far down under ${label}` : `not under ${label}`;
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

// The map of the results, citations among them, and one paper with all that is known of it.

import {count, fill, make, marked, number, percent, title} from "./dom.js";
import {keepButton} from "./kept.js";
import {facts} from "./lists.js";

const SVG = "http://www.w3.org/2000/svg";

export function showMap(root, answer, page) {
  if (answer.papers.length < 3) {
    fill(root, make("p.none", {}, "A map needs at least three papers."));
    return;
  }
  let chosen = answer.routes[0];
  const at = place => [50 * (1 + place[0]), 50 * (1 - place[1])];
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const lines = answer.citations.map(() => svg.appendChild(document.createElementNS(SVG, "line")));
  const beside = make("div.beside", {"aria-live": "polite"}, hint());
  const points = answer.papers.map((paper, n) => {
    const look = () => fill(beside, make("h2", {dir: "auto"}, title(paper)), facts(paper), ...ranks(paper, answer, page));
    return make("button.point", {type: "button", tabindex: -1, "data-paper": n, onfocus: look, onmouseenter: look,
      onclick: () => page.open(paper, chosen.name)});
  });
  const query = make("span.query", {"aria-hidden": "true"});
  const field = make("div.points", {role: "group", "aria-label": "Papers"}, points, query);
  const put = (element, place) => {
    const [left, top] = at(place);
    element.style.left = `${left}%`;
    element.style.top = `${top}%`;
  };
  const choose = route => {
    chosen = route;
    const inList = new Map(route.hits.map(hit => [hit.paper, hit.rank]));
    points.forEach((point, n) => {
      const rank = inList.get(n);
      point.className = `point ${page.colour(route.name)}${rank ? "" : " other"}`;
      point.setAttribute("aria-label", `${rank ? `${rank}. ` : ""}${title(answer.papers[n]).slice(0, 200)}`);
      fill(point, rank ?? "");
      put(point, route.map.papers[n]);
    });
    put(query, route.map.query);
    answer.citations.forEach(([from, to], n) => {
      const [[x1, y1], [x2, y2]] = [at(route.map.papers[from]), at(route.map.papers[to])];
      Object.entries({x1, y1, x2, y2}).forEach(([name, value]) => lines[n].setAttribute(name, value));
    });
    points[route.hits[0]?.paper ?? 0].tabIndex = 0;
  };
  field.addEventListener("keydown", event => moveOnMap(event, points, chosen));
  const chips = make("div.chips", {role: "radiogroup", "aria-label": "Map by"}, answer.routes.map((route, n) =>
    make(`label.chip.${page.colour(route.name)}`, {}, make("input", {type: "radio", name: "map-route", checked: n === 0, onchange: () => choose(route)}),
      make("span.dot", {"aria-hidden": "true"}), make("bdi", {}, route.label))));
  choose(chosen);
  fill(root, answer.routes.length > 1 && make("div.map-head", {}, chips),
    make("div.map-layout", {}, make("div.plane", {}, svg, field), beside));
}

const hint = () => make("p.hint", {}, "Near papers are alike under the chosen route. ✳ is the query; numbers are ranks, rings are papers that only other "
  + "routes list, lines are citations. Two dimensions cannot hold all distances.");

/** The nearest point in the direction of the arrow. */
function moveOnMap(event, points, route) {
  const way = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[event.key];
  const at = points.indexOf(event.target);
  if (!way || at < 0 || event.altKey) return;
  event.preventDefault();
  const places = route.map.papers, [x, y] = places[at];
  let best = null, least = Infinity;
  places.forEach(([left, up], n) => {
    const along = (left - x) * way[0] + (up - y) * way[1], across = Math.abs((left - x) * way[1]) + Math.abs((up - y) * way[0]);
    const cost = along + 2 * across;
    if (n !== at && along > 0 && cost < least) [best, least] = [n, cost];
  });
  if (best === null) return;
  points[at].tabIndex = -1;
  points[best].tabIndex = 0;
  points[best].focus();
}

export function showCitations(root, answer, page) {
  const by = new Map();
  for (const [from, to] of answer.citations) by.set(to, [...(by.get(to) ?? []), from]);
  const link = n => make("button.title", {type: "button", dir: "auto", "data-paper": n, onclick: () => page.open(answer.papers[n])}, title(answer.papers[n]));
  const year = n => answer.papers[n].year && make("span.facts", {}, ` ${answer.papers[n].year}`);
  const ranked = [...by].sort((one, other) => other[1].length - one[1].length);
  fill(root, ranked.length
    ? make("ol.cited", {}, ranked.map(([to, from]) => make("li", {}, link(to), year(to),
      make("p.facts", {}, `cited by ${count(from.length, "paper")} of these results`),
      make("ul", {}, from.map(n => make("li", {}, link(n), year(n)))))))
    : make("p.none", {}, "No paper of these results cites another one, as far as the corpus knows."));
}

function ranks(paper, answer, page) {
  const rows = answer.routes.map(route => {
    const standing = paper.ranks[route.name];
    return make(`tr.${page.colour(route.name)}`, {}, make("th", {scope: "row"}, make("span.dot.inline", {"aria-hidden": "true"}), " ", make("bdi", {}, route.label)),
      make("td", {}, standing ? number(standing.rank) : "–"),
      make("td", {}, standing?.percentile !== null && standing ? percent(standing.percentile) : "–"),
      make("td", {}, standing ? standing.score.toFixed(3) : "–"));
  });
  return [make("table", {}, make("thead", {}, make("tr", {}, ["Route", "Rank", "Nearer than", "Cosine"].map(name => make("th", {scope: "col"}, name)))),
    make("tbody", {}, rows))];
}

export function paperDetails(paper, answer, page, route) {
  const n = answer.papers.indexOf(paper);
  const place = route ? page.best(route, paper) : answer.routes.map(each => page.best(each.name, paper)).find(Boolean);
  const other = number => make("li", {}, make("button.title", {type: "button", dir: "auto", onclick: () => page.open(answer.papers[number], route)}, title(answer.papers[number])));
  const cites = answer.citations.filter(([from]) => from === n).map(([, to]) => to);
  const cited = answer.citations.filter(([, to]) => to === n).map(([from]) => from);
  const safe = paper.link && paper.link.startsWith("https://") ? paper.link : null;
  const ids = [paper.doi && `doi:${paper.doi}`, paper.pmid && `PMID ${paper.pmid}`, paper.pmcid].filter(Boolean).join(" · ") || paper.paper_id;
  return [
    facts(paper),
    make("p.facts", {}, safe ? make("a", {href: safe, target: "_blank", rel: "noopener noreferrer"}, ids) : make("bdi", {}, ids)),
    place?.passage && [make("h3", {}, "Best passage"), text(place.passage, place, place.terms)],
    place?.passage && paper.abstract && make("h3", {}, "Abstract"),
    paper.abstract ? text(paper.abstract, place?.passage ? null : place, paper.terms) : make("p.none", {}, "No abstract."),
    paper.terms.length > 0 && make("p.facts", {}, "In common: ", paper.terms.join(", ")),
    make("h3", {}, "Under each route"), ...ranks(paper, answer, page),
    cites.length > 0 && [make("h3", {}, "Cites, of these results"), make("ul.cited", {}, cites.map(other))],
    cited.length > 0 && [make("h3", {}, "Cited by, of these results"), make("ul.cited", {}, cited.map(other))],
    make("div.actions", {},
      make("button", {type: "button", onclick: event => { event.target.closest("dialog").close(); page.like(paper); }}, "More like this"), keepButton(paper)),
  ].filter(Boolean).flat();
}

/** An abstract or a passage, with its best sentence highlighted. */
function text(whole, place, words) {
  if (!place) return make("p.abstract", {dir: "auto"}, marked(whole, words));
  const characters = [...whole], part = (from, to) => characters.slice(from, to).join("");
  return make("p.abstract", {dir: "auto"}, marked(part(0, place.start), words),
    make("span.sentence", {title: "The sentence that is nearest to the query"}, marked(part(place.start, place.end), words)),
    marked(part(place.end, characters.length), words));
}

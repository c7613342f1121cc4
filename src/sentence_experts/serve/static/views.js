// The map of the results, citations among them, and one paper with all that is known of it.

import {count, fill, make, marked, number, title} from "./dom.js";
import {keepButton} from "./kept.js";
import {facts, safe} from "./lists.js";

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
  const names = answer.papers.map(paper => make("span.name", {"aria-hidden": "true"}, shortName(paper)));
  const query = make("span.query", {"aria-hidden": "true"});
  const field = make("div.points", {role: "group", "aria-label": "Papers"}, points, names, query);
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
    root.label();
  };
  root.label = () => placeNames(field, names, [...chosen.hits.map(hit => hit.paper), ...answer.papers.keys()],
    [...chosen.map.papers, chosen.map.query].map(at));
  field.addEventListener("keydown", event => moveOnMap(event, points, chosen));
  const chips = make("div.chips", {role: "radiogroup", "aria-label": "Map by"}, answer.routes.map((route, n) =>
    make(`label.chip.${page.colour(route.name)}`, {}, make("input", {type: "radio", name: "map-route", checked: n === 0, onchange: () => choose(route)}),
      make("span.dot", {"aria-hidden": "true"}), make("bdi", {}, route.label))));
  choose(chosen);
  fill(root, answer.routes.length > 1 && make("div.map-head", {}, chips),
    make("div.map-layout", {}, make("div.plane", {}, svg, field), beside));
}

const shortName = paper => {
  if (paper.by) return `${paper.by} ${paper.year ?? ""}`.trim();
  const words = title(paper).slice(0, 200);
  return words.length > 24 ? `${words.slice(0, 24).replace(/\s+\S*$/, "")}…` : words;
};

/** Names beside their points, in this order, where they hide neither points nor other names. */
function placeNames(field, names, order, places) {
  const width = field.clientWidth, height = field.clientHeight, gap = 14;
  if (!width) return;
  const points = places.map(([left, top]) => [left * width / 100, top * height / 100]);
  const taken = points.map(([x, y]) => [x - gap, y - gap, x + gap, y + gap]);
  for (const name of names) name.hidden = false;
  for (const n of new Set(order)) {
    const [x, y] = points[n], w = names[n].offsetWidth, h = names[n].offsetHeight;
    const free = [[x + gap, y - h / 2], [x - gap - w, y - h / 2], [x - w / 2, y - gap - h], [x - w / 2, y + gap]].find(([left, top]) =>
      left > -20 && left + w < width + 20 && top > -20 && top + h < height + 20
      && !taken.some(([l, t, r, b]) => left < r && left + w > l && top < b && top + h > t));
    names[n].hidden = !free;
    if (!free) continue;
    names[n].style.left = `${free[0]}px`;
    names[n].style.top = `${free[1]}px`;
    taken.push([free[0], free[1], free[0] + w, free[1] + h]);
  }
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
  const known = answer.papers.filter(paper => paper.cites || paper.cited_by).sort((one, other) => other.cited_by - one.cited_by || other.cites - one.cites);
  const link = paper => make("button.title", {type: "button", dir: "auto", "data-paper": answer.papers.indexOf(paper), onclick: () => page.open(paper)}, title(paper));
  fill(root, known.length
    ? make("ol.cited", {}, known.map(paper => make("li", {}, link(paper), facts(paper), citations(paper, answer, page))))
    : make("p.none", {}, "The corpus knows no citation between these papers and others of it."));
}

/** What a paper cites and is cited by within the corpus; the titles are asked for when a list is opened. */
function citations(paper, answer, page) {
  return [["cites", n => `Cites ${count(n, "paper")} of this corpus`], ["cited_by", n => `Cited by ${count(n, "paper")} of this corpus`]]
    .filter(([name]) => paper[name]).map(([name, label]) => {
      const list = make("ul", {}, make("li", {}, "…"));
      const one = each => {
        const among = answer.papers.find(other => other.paper_id === each.paper_id);
        return make("li", {}, among ? make("button.title", {type: "button", dir: "auto", onclick: () => page.open(among)}, title(among))
          : safe(each) ? make("a", {href: safe(each), target: "_blank", rel: "noopener noreferrer", dir: "auto"}, title(each)) : make("bdi", {}, title(each)),
        make("span.facts", {}, ` ${[each.by, each.year, among && "among these results"].filter(Boolean).join(" · ")}`));
      };
      const opened = async event => {
        if (!event.target.open || list.dataset.read) return;
        list.dataset.read = "1";
        const found = (await page.citations(paper))[name], more = paper[name] - found.length;
        fill(list, found.map(one), more > 0 && make("li", {}, `and ${number(more)} more`));
      };
      return make("details.links", {ontoggle: opened}, make("summary", {}, label(paper[name])), list);
    });
}

function ranks(paper, answer, page) {
  const rows = answer.routes.map(route => {
    const standing = paper.ranks[route.name];
    return make(`tr.${page.colour(route.name)}`, {}, make("th", {scope: "row"}, make("span.dot.inline", {"aria-hidden": "true"}), " ", make("bdi", {}, route.label)),
      make("td", {}, standing ? number(standing.rank) : "–"),
      make("td", {}, standing?.closeness ?? "–"),
      make("td", {}, standing ? standing.score.toFixed(3) : "–"));
  });
  return [make("table", {}, make("thead", {}, make("tr", {}, ["Similar by", "Rank", "Near", "Cosine"].map(name => make("th", {scope: "col"}, name)))),
    make("tbody", {}, rows))];
}

export function paperDetails(paper, answer, page, route) {
  const place = route ? page.best(route, paper) : answer.routes.map(each => page.best(each.name, paper)).find(Boolean);
  const values = (name, label) => paper[name === "keyword" ? "keywords" : name]?.length > 0 && make("p.facts.values", {}, `${label}: `,
    paper[name === "keyword" ? "keywords" : name].map(value => make("button.quiet", {type: "button", title: "Only papers with this", onclick: () => page.filter({[name]: value})}, value)));
  const ids = [paper.doi && `doi:${paper.doi}`, paper.pmid && `PMID ${paper.pmid}`, paper.pmcid].filter(Boolean).join(" · ") || paper.paper_id;
  return [
    paper.authors?.length > 0 && make("p.facts", {dir: "auto"}, paper.authors.join("; ")),
    facts(paper),
    make("p.facts", {}, safe(paper) ? make("a", {href: safe(paper), target: "_blank", rel: "noopener noreferrer"}, ids) : make("bdi", {}, ids)),
    place?.passage && [make("h3", {}, "Best passage"), text(place.passage, place, place.terms)],
    place?.passage && paper.abstract && make("h3", {}, "Abstract"),
    paper.abstract ? text(paper.abstract, place?.passage ? null : place, paper.terms) : make("p.none", {}, "No abstract."),
    paper.terms.length > 0 && make("p.facts", {}, "In common: ", paper.terms.join(", ")),
    values("keyword", "Keywords"), values("mesh", "MeSH"),
    make("h3", {}, "Under each route"), ...ranks(paper, answer, page),
    ...citations(paper, answer, page),
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

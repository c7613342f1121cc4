// The citations among the results, and one paper with all that is known of it.

import {count, fill, make, marked, number, title} from "./dom.js";
import {keepButton} from "./kept.js";
import {facts, safe} from "./lists.js";

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
      make("td", {}, standing?.rank ? number(standing.rank) : "–"),
      make("td", {}, standing?.closeness ?? "–"),
      make("td", {}, standing ? standing.score.toFixed(3) : "–"));
  });
  return [make("table", {}, make("thead", {}, make("tr", {}, ["Similar by", "Rank", "Near", "Cosine"].map(name => make("th", {scope: "col"}, name)))),
    make("tbody", {}, rows))];
}

export function paperDetails(paper, answer, page, route) {
  const place = route ? page.best(route, paper) : answer.routes.map(each => page.best(each.name, paper)).find(Boolean);
  const values = (name, label) => paper[name === "keyword" ? "keywords" : name]?.length > 0 && make("p.facts.values", {}, `${label}: `,
    paper[name === "keyword" ? "keywords" : name].map(value => value === "…" ? value : make("button.quiet", {type: "button", title: "Only papers with this", onclick: () => page.filter({[name]: name === "mesh" ? descriptor(value) : value})}, value)));
  const ids = [paper.doi && `doi:${paper.doi}`, paper.pmid && `PMID ${paper.pmid}`, paper.pmcid].filter(Boolean).join(" · ") || paper.paper_id;
  return [
    paper.authors?.length > 0 && make("p.facts", {dir: "auto"}, paper.authors.join("; ")),
    facts(paper),
    make("p.facts", {}, safe(paper) ? make("a", {href: safe(paper), target: "_blank", rel: "noopener noreferrer"}, ids) : make("bdi", {}, ids)),
    paper.file && make("p.facts", {}, "PDF: ", make("bdi", {}, paper.file), " ", make("button.quiet", {type: "button", onclick: event => page.copy(event.currentTarget, paper.file)}, "Copy path")),
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

/** The heading that papers are filtered by: Sleep of "*Sleep/physiology". */
function descriptor(heading) {
  return heading.split("/")[0].replaceAll("*", "").trim();
}

/** An abstract or a passage, with its best sentence highlighted. */
function text(whole, place, words) {
  if (!place) return make("p.abstract", {dir: "auto"}, marked(whole, words));
  const characters = [...whole], part = (from, to) => characters.slice(from, to).join("");
  return make("p.abstract", {dir: "auto"}, marked(part(0, place.start), words),
    make("span.sentence", {title: "The sentence that is nearest to the query"}, marked(part(place.start, place.end), words)),
    marked(part(place.end, characters.length), words));
}

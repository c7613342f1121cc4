// Papers that the user keeps: in this browser, until they become a file.

import {add, count, fill, find, make} from "./dom.js";
import {Refused, send} from "./server.js";

const NAME = "sentence-experts kept";
const NAMES = {ris: "papers.ris", bibtex: "papers.bib", csv: "papers.csv"};
const listeners = [];

/** The kept papers: {id, title, year}, oldest first. */
export function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(NAME) ?? "[]");
    return Array.isArray(found) ? found.filter(each => typeof each?.id === "string") : [];
  } catch {
    return [];
  }
}

function store(papers) {
  try {
    localStorage.setItem(NAME, JSON.stringify(papers));
  } catch { /* a browser without storage keeps nothing */ }
  for (const each of listeners) each();
}

/** Keep a paper, or do not any more. */
export function keep(paper) {
  const papers = kept(), rest = papers.filter(each => each.id !== paper.paper_id);
  const one = {id: paper.paper_id, title: paper.title?.slice(0, 300), year: paper.year};
  store(rest.length < papers.length ? rest : [...papers, one]);
}

export function onKept(listener) {
  listeners.push(listener);
  addEventListener("storage", listener);
  listener();
}

export function keepButton(paper, label = paper.title ?? "") {
  const on = kept().some(each => each.id === paper.paper_id);
  return make("button.quiet.keep", {type: "button", "data-id": paper.paper_id, "aria-pressed": on ? "true" : "false",
    "aria-description": label.slice(0, 200), onclick: () => keep(paper)}, on ? "Kept" : "Keep");
}

export function openKept(openDialog, ask) {
  const show = () => {
    const papers = kept();
    find("kept-actions").hidden = !papers.length;
    fill(find("kept-body"), papers.length
      ? make("ul.kept-list", {}, papers.map(each => make("li", {},
        make("bdi", {}, each.title || "(no title)", each.year ? ` (${each.year})` : ""),
        make("button.quiet", {type: "button", "aria-label": `Forget ${each.title ?? each.id}`,
          onclick: () => { store(kept().filter(other => other.id !== each.id)); show(); find("kept-title").focus(); }}, "✕"))))
      : make("p.none", {}, "Nothing yet. Keep papers with their button, or with the key K."));
    fill(find("kept-title"), papers.length ? count(papers.length, "kept paper") : "Kept papers");
  };
  for (const button of find("kept-actions").querySelectorAll("[data-format]")) {
    button.onclick = () => download(button.dataset.format, ask).catch(error => {
      add(find("kept-body"), [make("p.notice", {role: "alert"}, error instanceof Refused ? error.message : "The server does not answer.")]);
    });
  }
  find("forget").onclick = () => { store([]); show(); find("kept-title").focus(); };
  show();
  openDialog("kept");
}

async function download(format, ask) {
  const file = await send("/search/export", {papers: kept().map(each => each.id), format}, {ask, file: true});
  const address = URL.createObjectURL(file);
  make("a", {href: address, download: NAMES[format]}).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

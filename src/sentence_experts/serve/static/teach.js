// Marks on papers, and the routes that they teach: kept by the server, for each profile.

import {add, count, fill, find, make, number, title} from "./dom.js";
import {openScreen} from "./screen.js";
import {openProfile, profile, Refused, send} from "./server.js";

const MARKS_AT_ONCE = 100; // the most that the server takes in one request

let known = {marks: [], routes: [], name: null, can_undo: false};
let page = null;
let question = {query: null, like: []}; // what the papers on the screen were found by

const isOf = (mark, asked) => mark.query === asked.query && String(mark.like) === String(asked.like);
/** The mark of a paper for what was asked, or else the one that a list gave it. */
const markOf = paper => [question, {query: null, like: []}].map(asked => known.marks.find(each => each.paper === paper && isOf(each, asked))).find(Boolean);
const short = route => route.split(/:(.*)/s)[1] ?? "";

/** The taught route of this name in requests; undefined for any other. */
export const lesson = route => known.routes.find(each => page.isTaught(route) && each.name === short(route));

export function asks(answer) {
  question = {query: answer.query, like: answer.like.map(paper => paper.paper_id)};
  showMarks();
}

export function markButtons(paper, labels = ["Similar", "Not similar"], asked = undefined) {
  return [true, false].map((similar, n) => make("button.quiet.mark", {type: "button", "data-id": paper.paper_id,
    "data-similar": String(similar), "aria-pressed": "false", "aria-description": `in the way I mean: ${title(paper).slice(0, 200)}`,
    onclick: () => mark(paper, similar, asked)}, labels[n]));
}

/** Mark a paper; the same mark again takes it back. */
export function mark(paper, similar, asked = question) {
  const before = markOf(paper.paper_id), {query, like} = before ?? asked;
  const one = {paper: paper.paper_id, query, like, similar: before?.similar === similar && !before.assumed ? null : similar};
  return change("/marks", {marks: [one]});
}

/** Mark papers, by their ids, as similar to what was asked. */
export async function markAll(papers) {
  const marks = papers.map(paper => ({paper, ...question, similar: true}));
  for (let start = 0; start < marks.length; start += MARKS_AT_ONCE) {
    if (!await change("/marks", {marks: marks.slice(start, start + MARKS_AT_ONCE)})) return;
  }
}

/** Mark the papers of a file, or by a keyword, and say how many were found. */
async function markList(body) {
  const found = await change("/list", body);
  fill(find("list-said"), found ? [`${count(found.marked, "paper")} marked`, found.changed > 0 && `; ${number(found.changed)} of them marked otherwise before`, found.left_out > 0 && `; ${number(found.left_out)} more have the keyword`, found.unknown > 0 && `; ${number(found.unknown)} not in this library, such as “${found.examples[0]}”`]
    : find("teach-said").textContent);
}

export function showMarks() {
  for (const button of document.querySelectorAll("button.mark")) {
    const one = markOf(button.dataset.id);
    button.setAttribute("aria-pressed", String(one !== undefined && !one.assumed && String(one.similar) === button.dataset.similar));
  }
  const similar = known.marks.filter(each => each.similar).length, others = known.marks.length - similar;
  const few = similar < 2 || others < 2;
  fill(find("teach-count"), known.marks.length ? `${number(similar)} similar, ${number(others)} not similar${few ? "; mark two of either" : ""}` : "Mark papers as similar or not, in the way you mean.",
    known.name !== null && [" · ", make("bdi", {}, known.name)]);
  for (const name of ["teach-now", "list-teach"]) find(name).disabled = few;
  find("teach-new").hidden = !known.marks.length;
  find("teach-undo").hidden = !known.can_undo;
  fill(find("open-taught"), "Taught routes", profile() !== "" && [" · ", make("bdi", {}, profile())]);
}

function say(text, isError = false) {
  find("teach-said").className = isError ? "notice" : "";
  fill(find("teach-said"), text);
}

/** Ask the server for a change, or what there is; returns its answer, or null if it refused. */
async function change(path, body, isFirst = false) {
  // What still runs for the lists on the screen would ask for a route that may be gone by then.
  const renames = path === "/rename" || path === "/delete";
  if (renames) page.stop();
  try {
    const before = JSON.stringify(known.routes), asking = profile();
    const answer = await send(`/search/taught${path}`, body, {ask: page.ask});
    if (profile() !== asking) return null; // another profile was opened meanwhile
    known = answer;
    say("");
    showMarks();
    if (!isFirst && JSON.stringify(known.routes) !== before) await page.routesChanged(known.taught);
    return known;
  } catch (error) {
    say(error instanceof Refused ? error.message : "The server does not answer.", true);
    if (!(error instanceof Refused)) throw error;
    if (renames) await page.again();
    return null;
  }
}

/** The list that a new kind begins as; one that was taught stays on its route. */
export const firstOf = page => known.routes.some(one => one.name === known.name) ? null : page.first();

export async function teach() {
  if (find("teach-now").disabled) return;
  const started = performance.now();
  say("Teaching…");
  find("teach-now").disabled = true;
  const answer = await change("", {on: firstOf(page)});
  showMarks();
  if (!answer) return;
  const pick = document.querySelector(".phone select"); // on a phone, one list is shown
  if (pick) {
    pick.value = answer.taught;
    pick.dispatchEvent(new Event("change"));
  }
  say(`“${short(answer.taught)}” was taught in ${((performance.now() - started) / 1000).toFixed(1)} s.`);
  if (find("results").hidden) openTaught(); // nothing is asked that it could show
  document.querySelector(`.route[data-route="${CSS.escape(answer.taught)}"] .learned`)?.focus();
}

export const undo = () => known.can_undo && change("/undo", {});

/** What a route has learned, below the heading of its list. */
export function learned(route) {
  const one = lesson(route);
  return one && make("p.hint", {}, one.figures.verdict, " ",
    make("button.quiet.learned", {type: "button", "aria-description": one.name, onclick: () => openTaught(one.name)}, "What it learned"));
}

function details(one, open) {
  const {words, papers, verdict} = one.figures, name = make("input", {value: one.name, maxlength: 100, "aria-label": "Name", autocomplete: "off"});
  const acts = (path, body) => async () => { if (await change(path, body())) openTaught(); else find("taught-said").textContent = find("teach-said").textContent; };
  const moved = way => papers[way]?.length > 0 && make("ul", {}, papers[way].map(paper =>
    make("li", {}, make("bdi", {}, title(paper)), ` ${number(paper.before)} → ${number(paper.after)}`)));
  return make("details.lesson", {open}, make("summary", {}, make("bdi", {}, one.name), ` · ${count(one.marks, "mark")}`),
    make("p", {}, verdict), one.on && make("p.hint", {}, "Begun as ", make("bdi", {}, one.on), "."), one.missing > 0 && make("p.hint", {}, `${count(one.missing, "marked paper")} not in this library now: what is learned from the others may differ.`),
    make("p", {}, "Words that moved up: ", make("b", {}, words.up?.join(", ") || "none"), "; down: ", make("b", {}, words.down?.join(", ") || "none")),
    make("h3", {}, "Papers that rose, from rank to rank"), moved("up") || "none", make("h3", {}, "Papers that fell"), moved("down") || "none",
    make("form.actions", {onsubmit: event => { event.preventDefault(); acts("/rename", () => ({name: one.name, to: name.value.trim()}))(); }}, name,
      make("button", {}, "Rename"),
      make("button", {type: "button", onclick: acts("/begin", () => ({name: one.name}))}, "Go on teaching"),
      make("button", {type: "button", onclick: async () => { if (known.name === one.name || await change("/begin", {name: one.name})) openScreen(page, change); }}, "Papers to read"),
      make("button", {type: "button", onclick: acts("/delete", () => ({name: one.name}))}, "Delete")),
    make("p.hint", {}, "In programs: the model ", make("code", {}, `${one.model}:${one.name}`), " at ", make("code", {}, `${location.origin}/v1`), ". Written into a model:"),
    make("pre", {tabindex: "0"}, `sentence-experts add-route ${one.source ?? "MODEL"} '${one.name}' --from '${page.folder()}' --out NEW${profile() && ` --profile ${profile()}`}`));
}

export function openTaught(name) {
  find("taught-said").textContent = "";
  fill(find("taught-body"), known.routes.length ? known.routes.map(one => details(one, one.name === (name ?? known.name))) : make("p.none", {}, "Nothing was taught yet."));
  page.openDialog("taught");
}

/** Begin: read what is kept, also when another tab may have changed it. */
export async function beginTeaching(ofPage) {
  page = ofPage;
  find("teach-now").addEventListener("click", teach);
  find("teach-undo").addEventListener("click", undo);
  const openList = () => { fill(find("list-said")); page.openDialog("list"); };
  find("open-list").addEventListener("click", openList);
  addEventListener("dragenter", event => { if (event.dataTransfer?.types.includes("Files") && !document.querySelector("dialog[open]")) openList(); });
  for (const name of ["dragover", "drop"]) addEventListener(name, event => { if (!event.target.closest?.("input")) event.preventDefault(); }); // else the browser opens the file
  find("list-form").addEventListener("change", async ({target}) => {
    if (!target.files?.length) return;
    const text = await target.files[0].text();
    target.value = ""; // so that the same file can be chosen again
    await markList({text, similar: target.dataset.similar === "true"});
  });
  find("list-form").addEventListener("submit", event => {
    event.preventDefault();
    if (find("list-keyword").value.trim()) markList({keyword: find("list-keyword").value.trim()});
  });
  find("list-teach").addEventListener("click", () => { find("list").close(); teach(); });
  find("teach-new").addEventListener("click", () => change("/begin", {}));
  find("open-taught").addEventListener("click", () => openTaught());
  find("taught-undo").addEventListener("click", async () => { if (await undo()) openTaught(); });
  find("profile").value = profile();
  find("profile").addEventListener("change", async event => {
    const before = profile();
    page.stop();
    openProfile(event.target.value.trim());
    if (!await change("", null, true)) { // not a name
      openProfile(before);
      event.target.value = before;
      find("taught-said").textContent = find("teach-said").textContent;
      return page.again();
    }
    openTaught();
    await page.routesChanged();
  });
  addEventListener("focus", () => change("", null));
  await change("", null, true);
}

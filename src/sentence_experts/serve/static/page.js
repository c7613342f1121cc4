// The search page: reads the address, asks the server, shows the answer.

import {count, fill, find, make, number, title} from "./dom.js";
import {keep, kept, onKept, openKept} from "./kept.js";
import {arrange, showLists, showSentence} from "./lists.js";
import {paperDetails, showCitations} from "./views.js";
import {drawYears, onYears} from "./years.js";
import {keyed, openProfile, profile, Refused, send} from "./server.js";
import * as teaching from "./teach.js";
import * as asked from "./state.js";

let state = asked.read(location.search);
let about = null, answer = null, running = null, opened = null;
const best = new Map(); // route and paper -> its best sentence

const page = {
  open: openPaper,
  like: paper => change({like: [paper.paper_id], query: "", top: asked.TOP, view: "lists"}, true),
  keep,
  filter: fields => { find("paper").close(); change(fields, true); },
  unfold: () => change({apart: !state.apart}),
  citations: paper => send("/search/citations", {paper: paper.paper_id}, {ask: askKey}),
  more: () => change({top: Math.min(state.top * 2, asked.MOST)}),
  colour: name => `h${Math.max(about.routes.findIndex(each => each.name === name), 0) % 10}`,
  ask: askKey,
  openDialog,
  copy,
  folder: () => about.folder,
  isTaught: name => about.routes.some(each => each.taught && each.name === name),
  first: () => answer?.routes.map(each => each.name).find(name => about.routes.some(each => each.name === name && !each.taught)) ?? null,
  routesChanged,
  stop: () => running?.abort(),
  again: run,
  best: (route, paper) => best.get(`${route}\n${paper.paper_id}`),
};

// What is asked for

function change(fields, toTop = false) {
  const before = asked.write(state);
  state = {...state, ...fields};
  if (asked.write(state) !== before) history.pushState(null, "", asked.write(state));
  if ("query" in fields) find("query").value = state.query; // else it may hold a text that is being written
  showQuestion();
  run();
  if (toTop) {
    scrollTo({top: 0});
    find("query").focus({preventScroll: true});
  }
}

function showQuestion() {
  find("like").hidden = !state.like.length;
  find("hybrid").checked = state.hybrid;
  find("hybrid").closest("label").hidden = state.like.length > 0;
  const [from, to = ""] = state.year.includes("..") ? state.year.split("..") : [state.year, state.year];
  find("from").value = from;
  find("to").value = to;
  for (const name of asked.FILTERS) find(name).value = state[name];
  const filtered = Boolean(state.year || asked.FILTERS.some(name => state[name]));
  find("clear").hidden = !filtered;
  find("notices").checked = state.notices;
  if (filtered) find("filters").open = true;
  const chosen = state.routes.length ? state.routes : about.routes.filter(each => each.default).map(each => each.name);
  for (const box of find("routes").querySelectorAll("input")) {
    const all = page.isTaught(box.value) ? [] : chosen; // a model's name means its own routes
    box.checked = chosen.includes(box.value) || all.some(name => box.value.startsWith(`${name}:`));
  }
  const shares = asked.blend(state), most = Math.max(...shares?.values() ?? [1]);
  find("blend").checked = Boolean(shares);
  find("routes").hidden = Boolean(shares);
  find("weights").hidden = !shares;
  for (const slider of find("weights").querySelectorAll("input")) slider.value = 10 * (shares?.get(slider.name) ?? 0) / most;
  selectView();
}

function showLike(papers) {
  find("like").hidden = !papers.length;
  if (!papers.length) return;
  const close = make("button.quiet", {type: "button", "aria-label": "Search by text again", onclick: () => change({like: []}, true)}, "✕");
  fill(find("like"), "More like", make("b", {dir: "auto"}, papers.map(title).join(" · ")), close);
}

function chooseRoutes() {
  const boxes = [...find("routes").querySelectorAll("input")];
  const chosen = boxes.filter(box => box.checked).map(box => box.value);
  const usual = about.routes.filter(each => each.default).map(each => each.name);
  const same = chosen.length === usual.length && chosen.every(name => usual.includes(name));
  if (chosen.length) change({routes: same ? [] : chosen});
  else showQuestion();
}

/** One list by several routes of the first model, as much by each as its slider says. */
function blendRoutes(event) {
  if (event.target === find("blend") && !event.target.checked) return change({routes: []});
  const started = asked.blend(state), sliders = [...find("weights").querySelectorAll("input")];
  const shares = sliders.map(slider => [slider.name, started ? Number(slider.value) : 1]).filter(([, weight]) => weight > 0);
  if (shares.length) change({routes: [`${firstModel()}:${shares.map(each => each.join("=")).join(",")}`]});
  else showQuestion();
}

const firstModel = () => about.routes[0].name.split(":")[0];

const isAsked = () => state.like.length > 0 || state.query.trim() !== "";

// Asking

async function run() {
  running?.abort();
  running = new AbortController();
  const {signal} = running;
  if (!isAsked()) {
    answer = null;
    say("");
    find("results").hidden = true;
    find("intro").hidden = false;
    drawYears(about.values.year, about.values.year, state.year);
    document.title = `${about.corpus}: search`;
    return;
  }
  const slow = setTimeout(() => say("Searching…"), 300);
  const started = performance.now();
  try {
    answer = await send("/search", asked.body(state), {signal, ask: askKey});
    clearTimeout(slow);
    show(performance.now() - started);
    await sentences(signal).catch(error => { if (!(error instanceof Refused)) throw error; }); // the lists stay without them
  } catch (error) {
    clearTimeout(slow);
    if (error.name !== "AbortError") fail(error);
  }
}

function show(milliseconds) {
  best.clear();
  find("intro").hidden = true;
  find("results").hidden = false;
  find("results").dataset.address = asked.write(state);
  showLike(answer.like);
  document.title = `${answer.query ?? answer.like.map(title).join(", ")} – ${about.corpus}`;
  drawYears(answer.years, about.values.year, state.year);
  const columns = showLists(find("lists"), answer, page, state.top < asked.MOST, state.apart);
  teaching.asks(answer);
  showCitations(find("citations"), answer, page);
  selectView();
  const lone = answer.routes.reduce((sum, route) => sum + route.hits.filter(hit => hit.only).length, 0);
  const parts = [`${count(answer.papers.length, "paper")} under ${count(answer.routes.length, "route", "routes")}`];
  if (answer.routes.length > 1) parts.push(`${number(lone)} found by one route only`);
  if (columns < answer.routes.length) parts.push(`${count(answer.routes.length - columns, "list")} folded`);
  if (answer.hidden) parts.push(`${count(answer.hidden, "notice")} hidden`);
  if (answer.without_year) parts.push(`${count(answer.without_year, "paper")} without a year left out`);
  parts.push(`${Math.round(milliseconds)} ms`);
  say(answer.papers.length ? parts.join(" · ") : "No paper passes the filters.");
  if (answer.nothing_close) find("status").prepend(make("strong.far", {}, "No paper found is close to this query."));
}

/** The best sentences come in a second request per route, five papers at a time. */
async function sentences(signal) {
  const current = answer;
  for (let first = 0; first < state.top; first += 5) {
    for (const route of current.routes) {
      const papers = route.hits.slice(first, first + 5).map(hit => current.papers[hit.paper]).filter(paper => about.passages || paper.abstract);
      if (!papers.length) continue;
      const question = current.query === null ? {like: state.like} : {query: current.query};
      const body = {...question, route: route.name, papers: papers.map(paper => paper.paper_id)};
      const found = (await send("/search/sentences", body, {signal, ask: askKey})).sentences;
      for (const paper of papers) {
        const place = found[paper.paper_id];
        if (!place) continue;
        best.set(`${route.name}\n${paper.paper_id}`, place);
        showSentence(find("lists"), route.name, paper, place);
      }
    }
  }
}

function say(text) {
  find("status").classList.remove("error");
  fill(find("status"), text);
}

function fail(error) {
  find("results").hidden = true;
  find("status").classList.add("error");
  fill(find("status"), error instanceof Refused ? error.message : "This page could not show the answer.");
  if (!(error instanceof Refused)) throw error;
}

// Views and dialogs

function selectView() {
  for (const name of asked.VIEWS) {
    const tab = find(`tab-${name}`), selected = state.view === name;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    find(name).hidden = !selected;
  }
  arrange(find("lists"));
}

function openView(name) {
  state = {...state, view: name};
  history.replaceState(null, "", asked.write(state));
  selectView();
}

export function openDialog(name) {
  const dialog = find(name);
  if (!dialog.open) dialog.showModal();
  find(`${name}-title`).focus();
}

function openPaper(paper, route) {
  opened = paper;
  fill(find("paper-title"), title(paper));
  fill(find("paper-body"), ...paperDetails(paper, answer, page, route));
  find("paper-title").dir = "auto";
  openDialog("paper");
}

function askKey(again) {
  return new Promise(resolve => {
    const dialog = find("key"), field = find("key-field");
    field.value = "";
    fill(find("key-title"), again ? "The server does not know this key" : "This server asks for a key");
    dialog.onclose = () => resolve(field.value.trim());
    dialog.showModal();
    field.focus();
  });
}

async function copy(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    fill(button, "Copied");
  } catch {
    fill(button, "Not allowed here");
  }
  setTimeout(() => fill(button, label), 1500);
}

// Keys

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    find("query").select();
    find("query").focus();
    return;
  }
  if (!typing && event.key === "t") teaching.teach();
  if (!typing && event.key === "u") teaching.undo();
  const id = event.target.closest?.("[data-paper]")?.dataset.paper;
  if (typing || id === undefined || !answer) return;
  const paper = answer.papers[id], key = event.key.toLowerCase();
  if (key === "k") page.keep(paper);
  if (key === "s" || key === "n") teaching.mark(paper, key === "s");
  if (key === "l") page.like(paper);
}

function tabKeys(event) {
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (!step) return;
  const next = asked.VIEWS[(asked.VIEWS.indexOf(state.view) + step + asked.VIEWS.length) % asked.VIEWS.length];
  openView(next);
  find(`tab-${next}`).focus();
}

// Start

/** Read the routes again, after one was taught, renamed or deleted, and show the lists of those that are asked for. */
async function routesChanged(added) {
  about = await send("/search/corpus", null, {ask: askKey});
  showRoutes();
  const names = new Set(about.routes.map(each => each.name));
  let routes = state.routes.filter(name => names.has(name) || !name.includes(":") || name.includes("="));
  if (added && routes.length && !routes.includes(added)) routes = [...routes, added];
  state = {...state, routes, apart: state.apart || Boolean(added)};
  history.replaceState(null, "", asked.write(state));
  showQuestion();
  await run();
}

function showRoutes() {
  fill(find("about"), `${count(about.papers, "paper")}, ${count(about.routes.length, "route", "routes")}`);
  fill(find("routes"), about.routes.map(route => make(`label.chip.${page.colour(route.name)}`, {},
    make("input", {type: "checkbox", value: route.name, onchange: chooseRoutes}),
    make("span.dot", {"aria-hidden": "true"}), make("bdi", {}, route.label))));
  const blendable = about.routes.filter(route => route.name.split(":")[0] === firstModel());
  find("blend").closest("label").hidden = blendable.length < 2;
  fill(find("weights"), blendable.map(route => make(`label.weight.${page.colour(route.name)}`, {},
    make("span.dot", {"aria-hidden": "true"}), make("bdi", {}, route.label),
    make("input", {type: "range", min: 0, max: 10, name: route.name.split(/:(.*)/s)[1] ?? route.name, onchange: blendRoutes}))));
}

function prepare() {
  find("home").textContent = about.corpus;
  find("home").dir = "auto";
  showRoutes();
  find("filters").open = !matchMedia("(max-width: 44rem)").matches;
  for (const name of ["keyword", "mesh"]) {
    const values = Object.entries(about.values[name]);
    find(name).closest("label").hidden = values.length < 2;
    fill(find(`${name}-values`), values.map(([value, papers]) => make("option", {value}, number(papers))));
    find(name).addEventListener("change", event => change({[name]: event.target.value.trim()}));
  }
  for (const name of ["type", "journal", "domain"]) {
    const values = Object.entries(about.values[name]);
    const select = find(name);
    select.closest("label").hidden = values.length < 2;
    fill(select, make("option", {value: ""}, "any"), values.map(([value, papers]) =>
      make("option", {value}, `${value.length > 60 ? `${value.slice(0, 60)}…` : value} (${number(papers)})`)));
    select.addEventListener("change", () => change({[name]: select.value}));
  }
  find("years").hidden = Object.keys(about.values.year).length < 2;
}

function listen() {
  find("ask").addEventListener("submit", event => {
    event.preventDefault();
    const query = find("query").value.trim();
    if (query) change({query, like: [], top: asked.TOP});
  });
  find("blend").addEventListener("change", blendRoutes);
  find("hybrid").addEventListener("change", event => change({hybrid: event.target.checked}));
  find("notices").addEventListener("change", event => change({notices: event.target.checked}));
  find("clear").addEventListener("click", () => change({year: "", ...Object.fromEntries(asked.FILTERS.map(name => [name, ""]))}));
  onYears((from, to) => change({year: from || to ? (from === to ? from : `${from}..${to}`) : ""}));
  for (const name of asked.VIEWS) find(`tab-${name}`).addEventListener("click", () => openView(name));
  find("views").addEventListener("keydown", tabKeys);
  find("copy-link").addEventListener("click", event => copy(event.currentTarget, location.href));
  find("open-curl").addEventListener("click", () => {
    fill(find("curl-text"), asked.curl(state, keyed(), profile()));
    openDialog("curl");
  });
  find("copy-curl").addEventListener("click", event => copy(event.currentTarget, find("curl-text").textContent));
  find("open-help").addEventListener("click", () => openDialog("help"));
  find("kept-similar").addEventListener("click", () => {
    find("kept").close();
    teaching.markAll(kept().map(each => each.id));
  });
  find("open-kept").addEventListener("click", () => {
    find("kept-similar").hidden = !answer; // similar to what is asked
    openKept(openDialog, askKey);
  });
  find("key-form").addEventListener("submit", event => {
    event.preventDefault();
    find("key").close();
  });
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", event => event.target === dialog && dialog.close());
  }
  onKept(() => {
    for (const button of document.querySelectorAll("button.keep")) {
      const on = kept().some(each => each.id === button.dataset.id);
      button.setAttribute("aria-pressed", on);
      fill(button, on ? "Kept" : "Keep");
    }
    find("kept-count").textContent = kept().length;
  });
  addEventListener("keydown", onKey);
  addEventListener("resize", () => { arrange(find("lists")); });
  addEventListener("popstate", () => {
    find("paper").close();
    state = asked.read(location.search);
    find("query").value = state.query;
    showQuestion();
    run();
  });
}

try {
  const read = () => send("/search/corpus", null, {ask: askKey});
  about = await read().catch(error => {
    if (!(error instanceof Refused) || profile() === "") throw error;
    openProfile(""); // the one that was kept is refused now
    return read();
  });
  prepare();
  listen();
  showQuestion();
  find("query").value = state.query;
  if (!isAsked()) find("query").focus();
  await teaching.beginTeaching(page);
  await run();
} catch (error) {
  fail(error);
}

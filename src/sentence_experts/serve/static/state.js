// What is asked for lives in the address, so that a link leads to the same results.

export const FILTERS = ["type", "journal", "domain", "keyword", "mesh"];
const ONE = ["year", ...FILTERS];
const FIELDS = {type: "types", journal: "journals", domain: "domains", keyword: "keywords", mesh: "mesh"};
export const TOP = 10, MOST = 100;
export const VIEWS = ["lists", "citations"];

export function empty() {
  return {query: "", like: [], routes: [], year: "", type: "", journal: "", domain: "", keyword: "", mesh: "", notices: false, apart: false, hybrid: false, top: TOP, view: "lists"};
}

export function read(search) {
  const given = new URLSearchParams(search), state = empty();
  state.query = given.get("q") ?? "";
  state.like = given.getAll("like");
  state.routes = given.getAll("route");
  for (const name of ONE) state[name] = given.get(name) ?? "";
  state.notices = given.get("notices") === "1";
  state.apart = given.get("apart") === "1";
  state.hybrid = given.get("hybrid") === "1";
  state.top = Math.min(Math.max(parseInt(given.get("top"), 10) || TOP, 1), MOST);
  state.view = VIEWS.includes(given.get("view")) ? given.get("view") : "lists";
  return state;
}

export function write(state) {
  const out = new URLSearchParams();
  if (state.query) out.set("q", state.query);
  for (const each of state.like) out.append("like", each);
  for (const each of state.routes) out.append("route", each);
  for (const name of ONE) if (state[name]) out.set(name, state[name]);
  if (state.notices) out.set("notices", "1");
  if (state.apart) out.set("apart", "1");
  if (state.hybrid) out.set("hybrid", "1");
  if (state.top !== TOP) out.set("top", state.top);
  if (state.view !== "lists") out.set("view", state.view);
  const text = out.toString();
  return text ? `?${text}` : "/";
}

/** Route -> weight, where one list is asked for that blends the routes of a model; else null. */
export function blend(state) {
  const [, shares] = state.routes.length === 1 ? state.routes[0].split(/:(.*)/s) : [];
  if (!shares?.includes("=")) return null;
  return new Map(shares.split(",").map(each => [each.slice(0, each.lastIndexOf("=")), Number(each.slice(each.lastIndexOf("=") + 1))]));
}

/** The body of POST /search. */
export function body(state) {
  const out = state.like.length ? {like: state.like} : {query: state.query};
  if (state.routes.length) out.routes = state.routes;
  if (state.top !== TOP) out.top_k = state.top;
  if (state.year) out.year = state.year;
  for (const name of FILTERS) if (state[name]) out[FIELDS[name]] = [state[name]];
  if (state.notices) out.notices = true;
  if (state.hybrid && !state.like.length) out.hybrid = true;
  return out;
}

export function curl(state, keyed, profile) {
  const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;
  const key = keyed ? ` \\\n  -H "Authorization: Bearer $KEY"` : "";
  const whose = profile ? ` \\\n  -H ${quoted(`X-Profile: ${encodeURIComponent(profile)}`)}` : "";
  return `curl ${quoted(`${location.origin}/search`)}${key}${whose} \\\n  --json ${quoted(JSON.stringify(body(state)))}`;
}

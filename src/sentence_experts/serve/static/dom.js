// Elements out of text. Texts of papers become text nodes and nothing else: nothing here parses HTML.

/** An element: make("p.facts", {id: "a", onclick: f}, "text", element, ...); null and false are left out. */
export function make(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** The element with only these children. */
export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

export const find = id => document.getElementById(id);

/** The text as nodes, with the words in <mark>. */
export function marked(text, words) {
  if (!words.length) return [text];
  const escaped = words.map(word => word.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")).sort((a, b) => b.length - a.length);
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(${escaped.join("|")})(?![\\p{L}\\p{N}])`, "giu");
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push(text.slice(end, match.index), make("mark", {}, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

const numbers = new Intl.NumberFormat("en");
export const number = value => numbers.format(value);
export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

const compact = new Intl.NumberFormat("en", {notation: "compact"});
/** A rank in at most four characters. */
export const short = rank => compact.format(rank);

export const title = paper => paper.title || "(no title)";

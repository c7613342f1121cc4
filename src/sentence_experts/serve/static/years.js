// A histogram of years: two fields for the keyboard, bars to click or to draw over.

import {fill, find, make, number} from "./dom.js";

let years = [], tell = () => {};

/** Bars of `counts` (year -> papers) over all years of the corpus; those in the chosen range stand out. */
export function drawYears(counts, all, chosen) {
  const next = new Date().getFullYear() + 1;  // a wrong year far in the future would push out all others
  const known = Object.keys(all).map(Number).filter(year => year <= next);
  if (known.length < 2) return;
  const last = Math.max(...known), first = Math.max(Math.min(...known), last - 79);
  years = Array.from({length: last - first + 1}, (_, n) => first + n);
  const most = Math.max(...years.map(year => counts[year] ?? 0), 1);
  const [from, to] = chosen.includes("..") ? chosen.split("..") : [chosen, chosen];
  fill(find("bars"), years.map(year => {
    const papers = counts[year] ?? 0;
    const bar = make("i", {title: `${year}: ${number(papers)}`, "data-year": year});
    if ((!from || year >= from) && (!to || year <= to)) bar.className = "in";
    bar.style.setProperty("--share", papers ? Math.max(100 * papers / most, 6) : 0);
    return bar;
  }));
  find("bars").setAttribute("aria-label", `Years of the nearest papers, from ${first} to ${last}`);
  find("from").placeholder = first;
  find("to").placeholder = last;
}

export function onYears(listener) {
  tell = listener;
  const bars = find("bars"), from = find("from"), to = find("to");
  let start = null;
  const yearAt = event => {
    const box = bars.getBoundingClientRect();
    const share = (event.clientX - box.left) / Math.max(box.width, 1);
    return years[Math.min(Math.max(Math.floor(share * years.length), 0), years.length - 1)];
  };
  const shade = (one, other) => {
    const [low, high] = one < other ? [one, other] : [other, one];
    for (const bar of bars.children) bar.className = bar.dataset.year >= low && bar.dataset.year <= high ? "in" : "";
    [from.value, to.value] = [low, high];
    return [String(low), String(high)];
  };
  bars.addEventListener("pointerdown", event => {
    if (!years.length) return;
    bars.setPointerCapture(event.pointerId);
    start = yearAt(event);
    shade(start, start);
  });
  bars.addEventListener("pointermove", event => start !== null && shade(start, yearAt(event)));
  bars.addEventListener("pointerup", event => {
    if (start === null) return;
    const range = shade(start, yearAt(event));
    start = null;
    tell(...range);
  });
  for (const field of [from, to]) {
    field.addEventListener("change", () => {
      const clean = each => (/^\d{1,4}$/.test(each.value.trim()) ? each.value.trim() : "");
      const [low, high] = [clean(from), clean(to)];
      tell(...(low && high && Number(low) > Number(high) ? [high, low] : [low, high]));
    });
  }
}

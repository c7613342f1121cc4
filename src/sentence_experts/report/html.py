"""The frame of HTML reports: one file, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape

CSS = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto;
  max-width: 62rem; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
h1, h2, nav a, .verdict, dd { overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: .4rem 1rem; } a { color: #005a8c; }
.verdict { border-left: .3rem solid #0072b2; background: #f3f7fa; padding: .5rem 1rem; max-width: 48rem; }
.verdict h2 { margin: 0; } .verdict p { margin: .4rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; margin: .75rem 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
.caption { color: #444; font-size: .9rem; margin: .75rem 0 0; max-width: 48rem; }
th, td { padding: .3rem .6rem; text-align: right; vertical-align: top; border-bottom: 1px solid #ddd; }
th[scope=row], thead th:first-child { text-align: left; }
th[scope=row] { position: sticky; left: 0; background: #fff; min-width: 6.5rem; max-width: 16rem;
  overflow-wrap: anywhere; }
thead th { border-bottom: 2px solid #888; }
td small, th small { display: block; color: #555; white-space: nowrap; font-weight: normal; }
summary { cursor: pointer; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; }
@media (max-width: 48rem) { figure img { max-width: none; } }
figcaption, .note { color: #444; font-size: .9rem; max-width: 48rem; }
dl { font-size: .9rem; } dt { font-weight: 600; } dd { margin: 0 0 .4rem 1rem; }
pre { overflow-x: auto; background: #f6f6f6; padding: .75rem; font-size: .8rem; }
"""


def document(title: str, body: str) -> str:
    """A whole page with its heading; `body` is HTML."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def verdict(lines: Iterable[str]) -> str:
    """The section that a page begins with."""
    listed = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f'<section class="verdict">\n<h2>Verdict</h2>\n{listed}\n</section>'


def table(caption: str, heads: Iterable[str], rows: Iterable[tuple[str, str]]) -> str:
    """A table that scrolls in its own box if it is too wide, below its caption, which does not.

    `heads` begins with the heading of the row names; a row is its name and its cells, both HTML.
    """
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in heads)
    body = "\n".join(f'<tr><th scope="row">{name}</th>{cells}</tr>' for name, cells in rows)
    return (
        f'<p class="caption">{escape(caption)}</p>\n'
        f'<div class="wide"><table aria-label="{escape(caption)}">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def cell(lines: list[str]) -> str:
    """A cell: a value, and small print below it."""
    value, *below = lines
    return f"<td>{value}{''.join(f'<small>{escape(line)}</small>' for line in below)}</td>"


def figure(svg: str, alternative: str, caption: str) -> str:
    """A drawing within the page; on narrow screens it keeps its size, so that it can be read, and scrolls."""
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return (
        f'<figure><div class="wide">'
        f'<img alt="{escape(alternative)}" src="data:image/svg+xml;base64,{data}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )

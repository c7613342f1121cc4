"""A comparison as tables: as Markdown, as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from sentence_experts.report.html import document
from sentence_experts.reproduce.comparison import ReproductionResult


def markdown(comparison: ReproductionResult) -> str:
    """The whole comparison as Markdown."""
    parts = [f"# {comparison.title}", f"{comparison.paper}; scale: {comparison.scale}. {comparison.legend}."]
    for table in comparison.tables:
        rows = ["| " + " | ".join(line) + " |" for line in (table.headings, *table.lines)]
        rule = "|" + "---|" * len(table.headings)
        parts += [f"## {table.title}", "\n".join([rows[0], rule, *rows[1:]])]
    for heading, items in _lists(comparison):
        parts += [f"## {heading}", "\n".join(f"- {item}" for item in items)]
    return "\n\n".join(parts) + "\n"


def html(comparison: ReproductionResult) -> str:
    """The whole comparison as one page, nothing loaded from elsewhere."""
    body = [f"<p>{escape(comparison.paper)}; scale: {comparison.scale}. {escape(comparison.legend)}.</p>"]
    for table in comparison.tables:
        head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in table.headings)
        lines = "\n".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in table.lines
        )
        body.append(
            f'<h2>{escape(table.title)}</h2><div class="wide"><table><thead><tr>{head}</tr></thead>\n'
            f"<tbody>{lines}</tbody></table></div>"
        )
    for heading, items in _lists(comparison):
        listed = "".join(f"<li>{escape(item)}</li>" for item in items)
        body.append(f"<h2>{escape(heading)}</h2><ul>{listed}</ul>")
    return document(comparison.title, "\n".join(body))


def _lists(comparison: ReproductionResult) -> Iterator[tuple[str, tuple[str, ...]]]:
    lists = {
        "What differs from the published experiment": comparison.differences,
        "Choices of the protocol that leak, or that the paper leaves open": comparison.choices,
        "On the published figures": comparison.notes,
    }
    yield from ((heading, items) for heading, items in lists.items() if items)

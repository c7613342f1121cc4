"""Draw "Experts minus dense" of benchmarks/results/studies.md as docs/images/experts-minus-dense.svg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TABLE = REPOSITORY / "benchmarks" / "results" / "studies.md"
PICTURE = REPOSITORY / "docs" / "images" / "experts-minus-dense.svg"
ROW = re.compile(
    r"^\| ([^|]+) \| [\d.]+ \| [\d.]+ \| ([+-][\d.]+) \(([+-][\d.]+) to ([+-][\d.]+)\) \|$", re.M
)
WIDTH, TOP, STEP, LEFT, SCALE = 860, 50, 40, 400, 800  # pixels; SCALE: per unit of ROC-AUC
TICKS = (0.0, 0.1, 0.2, 0.3, 0.4)


def draw_result() -> str:
    """The picture as SVG."""
    rows = ROW.findall(TABLE.read_text(encoding="utf-8"))
    height = TOP + STEP * len(rows) + 40
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="14" role="img" aria-labelledby="t d">',
            '<title id="t">Experts minus dense</title>',
            f'<desc id="d">{escape("; ".join(f"{row[0]}: {row[1]} ({row[2]} to {row[3]})" for row in rows))}'
            "</desc>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            '<text x="20" y="24" font-weight="bold" fill="#222222">ROC-AUC of experts minus that of a dense '
            "model, with 95% interval</text>",
            *_axis(height),
            *(line for number, row in enumerate(rows) for line in _row(number, *row)),
            "</svg>\n",
        ]
    )


def _axis(height: int) -> Iterator[str]:
    for tick in TICKS:
        x, colour = _place(tick), "#444444" if tick == 0 else "#dddddd"
        yield f'<path d="M{x} {TOP - 10}V{height - 34}" stroke="{colour}"/>'
        label = f"+{tick:g}" if tick else "0"
        yield f'<text x="{x}" y="{height - 16}" text-anchor="middle" fill="#444444">{label}</text>'


def _row(number: int, name: str, difference: str, low: str, high: str) -> Iterator[str]:
    y = TOP + STEP * number + 14
    colour = "#555555" if float(low) <= 0 <= float(high) else "#0b5cad"
    yield f'<text x="20" y="{y + 5}" fill="#111111">{escape(name.partition(" (")[0])}</text>'
    yield f'<path d="M{_place(low)} {y}H{_place(high)}" stroke="{colour}" stroke-width="3"/>'
    yield f'<circle cx="{_place(difference)}" cy="{y}" r="6" fill="{colour}"/>'


def _place(value: str | float) -> int:
    return round(LEFT + 20 + SCALE * float(value))


if __name__ == "__main__":
    PICTURE.write_text(draw_result(), encoding="utf-8")

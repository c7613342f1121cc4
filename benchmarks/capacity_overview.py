"""Overview of `capacity.py` over all its sets: a figure, and tables that stand in the documentation too."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from measuring import HERE, table
from sentence_experts.evaluation.statistics import Runs, estimate

if TYPE_CHECKING:
    from capacity_report import SetRuns

# Pages with tables of the study, between two comments that name them.
DOCS = HERE.parent / "docs"
PAGES = (DOCS / "which-route.md", DOCS / "paper" / "capacity.md")
ARMS = ("base", "head", "dense", "adapter, rank 8", "expert", "separate")
TRAINED = ARMS[2:]

Sets = Mapping[str, "SetRuns"]


def _cell(runs: Runs, seeds: int) -> str:
    found = estimate(runs)
    if found is None:
        return "–"
    interval = found.interval(0.0, 1.0)
    return f"{found.value:.3f} ±{(interval.high - interval.low) / 2:.3f}{f' ({seeds})' if seeds > 1 else ''}"


def quality_table(sets: Sets, conflicts: bool = False) -> str:
    """Markdown: nDCG@10, or the ROC-AUC of conflicting pairs, of each set and arm.

    A cell has the mean, half of its 95% interval, and the number of seeds.
    """
    lines = []
    for name, own in sets.items():
        if conflicts and not own.tests:
            continue
        cells = []
        for arm in ARMS:
            rows = own.arms.get(arm, [])
            runs = [own.auc_runs(row) for row in rows] if conflicts else []
            found = Runs.joined(runs) if runs else own.ndcg(rows) if rows else None
            cells.append("–" if found is None else _cell(found, len(rows)))
        lines.append([name, str(len(own.queries)), *cells])
    return table(["data", "routes", *ARMS], lines)


def best_trained(own: SetRuns) -> str | None:
    """The arm with trained blocks that validation prefers on a set."""
    found = {
        arm: float(np.mean([row["validation"] for row in own.arms[arm]]))
        for arm in TRAINED
        if arm in own.arms
    }
    return max(found, key=lambda arm: found[arm]) if found else None


def points(sets: Sets) -> list[tuple[str, str, float, float]]:
    """For each route: data, route, ROC-AUC of the base on its conflicts, gain of trained blocks over a head.

    The arm with trained blocks is that which validation prefers, so that no gain comes from choosing among
    test figures.
    """
    found = []
    for name, own in sets.items():
        arm = best_trained(own)
        if arm is None or "base" not in own.arms or "head" not in own.arms:
            continue
        for route in own.tests:
            one, other = own.route_mean(arm, route), own.route_mean("head", route)
            if one is not None and other is not None:
                found.append((name, route, own.auc(own.arms["base"][0], route), one - other))
    return found


def draw(sets: Sets) -> str | None:
    """SVG: gain of trained blocks over a linear map, by how far the base agrees with a route."""
    found = points(sets)
    if not found:
        return None
    import matplotlib

    from sentence_experts.report.figures import MODEL_COLOURS, STYLE

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    style: Any = STYLE
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(7, 4.4))
        for number, name in enumerate(dict.fromkeys(name for name, *_ in found)):
            x, y = np.array([point[2:] for point in found if point[0] == name]).T
            colour = MODEL_COLOURS[number % len(MODEL_COLOURS)]
            axes.plot(x, y, "osD^vP*X"[number], color=colour, linestyle="", label=name)
        axes.axhline(0, color="#999999", linewidth=0.8)
        axes.axvline(0.5, color="#999999", linewidth=0.8)
        axes.set_xlabel("ROC-AUC of the base on conflicting pairs of the route")
        axes.set_ylabel("nDCG@10, trained blocks - linear map")
        axes.legend()
        out = io.StringIO()
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
        plt.close(figure)
    return out.getvalue()


def fill_pages(blocks: Mapping[str, str], pages: Sequence[Path]) -> None:
    """Replace the tables of pages: what stands between `<!-- table: NAME -->` and `<!-- end -->`."""
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for name, block in blocks.items():
            mark = f"<!-- table: {name} -->"
            text = re.sub(
                rf"{re.escape(mark)}.*?<!-- end -->",
                lambda _, mark=mark, block=block: f"{mark}\n{block}\n<!-- end -->",  # type: ignore[misc]
                text,
                flags=re.DOTALL,
            )
        page.write_text(text, encoding="utf-8")

"""Overview of `capacity.py` over all its sets: a figure, and tables that stand in the documentation too."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from measuring import HERE, table
from sentence_experts.evaluation.estimates import Runs, estimate

if TYPE_CHECKING:
    from capacity_report import SetRuns

# Pages with tables of the study, between two comments that name them.
DOCS = HERE.parent / "docs"
PICTURE = DOCS / "images" / "capacity.svg"
PAGES = (DOCS / "which-route.md", DOCS / "paper" / "capacity.md")
TRAINED = ("dense", "adapter, rank 8", "expert", "separate")
ARMS = ("base", "head", *TRAINED, "base, whole texts", "head, whole texts", "expert, whole texts")
MOST_NAMED = 16  # points whose route stands beside them

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
    arms = [arm for arm in ARMS if any(arm in own.arms for own in sets.values())]
    for name, own in sets.items():
        if conflicts and not own.tests:
            continue
        cells = []
        for arm in arms:
            rows = own.arms.get(arm, [])
            runs = [own.auc_runs(row) for row in rows] if conflicts else []
            found = Runs.joined(runs) if runs else own.ndcg(rows) if rows else None
            cells.append("–" if found is None else _cell(found, len(rows)))
        lines.append([name, str(len(own.queries)), *cells])
    return table(["data", "routes", *arms], lines)


def points(sets: Sets) -> list[tuple[str, str, float, float]]:
    """For each route: data, route, ROC-AUC of the base on its conflicts, gain of experts over a head."""
    found = []
    for name, own in sets.items():
        for route in own.tests if {"base", "head", "expert"} <= set(own.arms) else ():
            experts, head = (own.route_mean(arm, route) or 0.0 for arm in ("expert", "head"))
            found.append((name, route, own.auc(own.arms["base"][0], route), experts - head))
    return found


def explain(sets: Sets) -> str:
    """A sentence: the rank correlations of that gain, over the routes, with what could explain it."""
    from scipy.stats import spearmanr

    found = points(sets)
    if len(found) < 3:
        return "No runs yet."
    gains = [gain for *_, gain in found]
    reasons = {
        "the base's ROC-AUC on the route's conflicts": [auc for _, _, auc, _ in found],
        "the base's nDCG@10": [sets[name].route_mean("base", route) for name, route, *_ in found],
        "the linear map's": [sets[name].route_mean("head", route) for name, route, *_ in found],
        "the number of labels": [len(sets[name].data.labels[route].names) for name, route, *_ in found],
    }
    told = "; ".join(f"{name} {spearmanr(gains, own).statistic:+.2f}" for name, own in reasons.items())
    return (
        f"Rank correlations of what experts add to a linear map, over {len(found)} routes of "
        f"{len({name for name, *_ in found})} sets (added later): {told}."
    )


def draw(sets: Sets) -> str | None:
    """SVG: gain of experts over a linear map, by how far the base agrees with a route."""
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
        names = list(dict.fromkeys(name for name, *_ in found))
        for name, route, across, up in found if len(found) <= MOST_NAMED else []:
            # Beside the point, where fewest others are.
            is_left, is_below = across < 0.35, names.index(name) % 2
            place = (-6 if is_left else 6, -10 if is_below else 4)
            side = "right" if is_left else "left"
            axes.annotate(route, (across, up), place, textcoords="offset points", fontsize="small", ha=side)
        axes.axhline(0, color="#999999", linewidth=0.8)
        axes.axvline(0.5, color="#999999", linewidth=0.8)
        axes.set_xlabel("agreement of the base: its ROC-AUC on conflicting pairs of the route")
        axes.set_ylabel("nDCG@10: experts minus a linear map (logarithmic from 0.1)")
        axes.set_yscale("symlog", linthresh=0.1)  # one set has gains of half a point
        ticks = [0, 0.05, 0.1, 0.2, 0.5]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.margins(x=0.12)
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

"""Drawings: SVG text of evaluations and of analyses of routing weights (MoEE), PNG of similarity (MoTE).

Models differ in colour (Okabe & Ito's palette, safe for colour-blind readers) and in line style.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import require
from sentence_experts.moee.vectors import PARTS
from sentence_experts.report.tables import p_value

if TYPE_CHECKING:
    from sentence_experts.evaluation.similarity import Similarity

LINKED, UNLINKED = "#0072B2", "#D55E00"
MODEL_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
LINE_STYLES: tuple[Any, ...] = ("-", "--", "-.", (0, (1, 1)))
BINS = 40
POINTS_PER_CURVE = 300
PANELS_PER_ROW = 4
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "svg.fonttype": "path",
    # Element ids come from this instead of random numbers, so that equal drawings are equal bytes.
    "svg.hashsalt": "sentence-experts",
}

CELL, SMALL_CELL, BOX = 0.55, 0.42, 0.34  # inches: of the heat map, of the matrix of prompts, of a box
DOTS = 160  # per inch
NAME_LENGTH = 40
SHARES = {
    "both_right": "both right",
    "only_hidden": "only HS right",
    "only_routing": "only RW right",
    "both_wrong": "both wrong",
}
Scores = Mapping[str, NDArray[np.float64]]  # model label -> (pairs,)


def histograms(scores: Scores, labels: NDArray[np.int64], thresholds: Mapping[str, float | None]) -> str:
    """Draw a panel per model: cosines of linked and unlinked pairs, and the threshold of F1max."""
    rows, columns = -(-len(scores) // PANELS_PER_ROW), min(len(scores), PANELS_PER_ROW)
    with _drawing(max(2.4 * columns, 3.2), 2.2 * rows, rows, columns) as (figure, axes):
        for axis in axes.flat[len(scores) :]:
            axis.remove()
        everything = np.concatenate(list(scores.values()))
        edges = np.linspace(min(0.0, everything.min()), max(1.0, everything.max()), BINS + 1)
        for axis, (label, values) in zip(axes.flat, scores.items(), strict=False):
            for kind, colour, name in ((0, UNLINKED, "not linked"), (1, LINKED, "linked")):
                if (labels == kind).any():
                    share = np.histogram(values[labels == kind], edges)[0] / (labels == kind).sum()
                    axis.stairs(share, edges, fill=True, color=colour, alpha=0.3)
                    axis.stairs(share, edges, color=colour, label=name, linestyle="-" if kind else "--")
            if (threshold := thresholds[label]) is not None:
                axis.axvline(threshold, color="#333333", linewidth=1, linestyle=":")
            axis.set(title=_short(label), xlabel="cosine", yticks=[], xlim=(edges[0], edges[-1]))
        axes[0, 0].set_ylabel("share of pairs")
        axes[0, 0].legend(frameon=False, fontsize=8, handlelength=1.4)
        return svg_of(figure)


def curves(scores: Scores, labels: NDArray[np.int64], thresholds: Mapping[str, float | None]) -> str:
    """Draw ROC curves, and precision against recall with a dot at F1max. Needs linked and unlinked pairs."""
    from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

    with _drawing(7.6, 3.4, columns=2) as (figure, ((left, right),)):
        colours, styles = cycle(MODEL_COLOURS), cycle(LINE_STYLES)
        for label, values in scores.items():
            line: dict[str, Any] = {"color": next(colours), "linestyle": next(styles), "linewidth": 1.7}
            false_rate, true_rate, _ = roc_curve(labels, values)
            area = roc_auc_score(labels, values)
            left.plot(*_thinned(false_rate, true_rate), label=f"{_short(label)}  (AUC {area:.3f})", **line)
            precision, recall, _ = precision_recall_curve(labels, values, drop_intermediate=True)
            right.plot(*_thinned(recall, precision), **line)
            if (threshold := thresholds[label]) is not None:
                called = values >= threshold
                hits = (called & (labels == 1)).sum()
                right.plot(hits / labels.sum(), hits / called.sum(), "o", markersize=5, color=line["color"])
        left.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
        left.annotate("chance", (0.52, 0.5), color="#666666", fontsize=8, va="top")
        right.axhline(labels.mean(), color="#999999", linewidth=0.8)
        right.annotate("chance", (0.52, labels.mean() - 0.02), color="#666666", fontsize=8, va="top")
        left.set(title="ROC", xlabel="false positive rate", ylabel="true positive rate")
        right.set(title="Precision and recall (dot: F1max)", xlabel="recall", ylabel="precision")
        for axis in (left, right):
            axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
        figure.legend(loc="outside lower center", frameon=False, ncols=2, fontsize=8)
        return svg_of(figure)


def heat_map(
    labels: Sequence[str], gaps: Mapping[tuple[str, str], float], marks: Mapping[tuple[str, str], str]
) -> str:
    """Draw the differences of all pairs of models, row minus column, written in the cells with their marks.

    `gaps` and `marks` hold each pair once, in the same order. Blue is above zero, red below; bold
    has a star.
    """
    all_gaps = {**gaps, **{(second, first): -gap for (first, second), gap in gaps.items()}}
    all_marks = {**marks, **{(second, first): mark for (first, second), mark in marks.items()}}
    values = np.array([[all_gaps.get((row, column), np.nan) for column in labels] for row in labels])
    largest = max((abs(gap) for gap in gaps.values()), default=0.0) or 1.0
    size = CELL * len(labels)
    with _drawing(size + 2.6, size + 1.6) as (figure, ((axis,),)):
        axis.imshow(values, cmap="RdBu", vmin=-2 * largest, vmax=2 * largest)  # pale enough to read
        for (row, column), gap in np.ndenumerate(values):
            if np.isfinite(gap):
                mark = all_marks.get((labels[row], labels[column]), "")
                shown = f"{gap:+.3f}".replace("0.", ".", 1)
                text = axis.text(column, row, f"{shown}\n{mark}".rstrip(), ha="center", va="center")
                text.set(fontsize=7.5, fontweight="bold" if "*" in mark else "normal", linespacing=0.8)
        short = [_short(label) for label in labels]
        axis.set_xticks(range(len(labels)), short, rotation=40, ha="right", rotation_mode="anchor")
        axis.set_yticks(range(len(labels)), short)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        return svg_of(figure)


def prompt_matrix(sides: Sequence[str], matrix: Sequence[Sequence[float]]) -> str:
    """Draw Spearman's correlations between all parts and prompts, written in the cells (figure 4)."""
    size = SMALL_CELL * len(sides)
    with _drawing(size + 2.2, size + 1.6) as (figure, ((axis,),)):
        axis.imshow(np.array(matrix), cmap="Blues", vmin=0, vmax=1.6)  # pale enough to read
        for (row, column), value in np.ndenumerate(np.array(matrix)):
            text = f"{value:.2f}".replace("0.", ".")
            axis.text(column, row, text, ha="center", va="center", fontsize=7)
        axis.set_xticks(range(len(sides)), sides, rotation=60, ha="right", fontsize=8)
        axis.set_yticks(range(len(sides)), sides, fontsize=8)
        return svg_of(figure)


def stability(rows: Sequence[Mapping[str, Any]], prompts: int) -> str:
    """Draw the correlation with human scores: mean and standard deviation over the prompts (figure 5)."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    with _drawing(max(4.0, 1.3 * len(datasets) + 1.5), 2.8) as (figure, ((axis,),)):
        for number, part in enumerate(PARTS):
            own = [row for row in rows if row["part"] == part]
            at = np.arange(len(own)) + (number - (len(PARTS) - 1) / 2) * 0.16
            spread = [np.sqrt(row["variance"] or 0.0) for row in own]
            axis.errorbar(
                at, [row["mean"] for row in own], spread,
                fmt="o", markersize=4, capsize=3, color=MODEL_COLOURS[number], label=part.upper(),
            )  # fmt: skip
        axis.set_xticks(range(len(datasets)), datasets)
        axis.set_ylabel("Spearman")
        axis.set_title(f"Mean and standard deviation over {prompts} prompts")
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        return svg_of(figure)


def complementarity_bars(datasets: Mapping[str, Mapping[str, float]]) -> str:
    """Draw the shares of the pairs of each dataset that both parts, one or none is right about (figure 2)."""
    colours = ("#bbbbbb", MODEL_COLOURS[0], MODEL_COLOURS[1], "#555555")
    with _drawing(6.4, 0.36 * len(datasets) + 1.3) as (figure, ((axis,),)):
        left = np.zeros(len(datasets))
        for (key, name), colour in zip(SHARES.items(), colours, strict=True):
            values = np.array([shares[key] for shares in datasets.values()])
            axis.barh(list(datasets), values, left=left, color=colour, label=name, height=0.7)
            left += values
        axis.invert_yaxis()
        axis.set(xlim=(0, 1), xlabel="share of the pairs")
        figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
        return svg_of(figure)


def similarity_figure(similarity: Similarity) -> bytes:
    """Draw a PNG: for each pair of routes the cosines of one model or two, and the p-values, if any.

    Whiskers reach to the 5% and 95% quantiles.
    """
    models, tests = similarity.cosines, similarity.tests
    pairs = list(next(iter(models.values())))
    with _drawing(7.2, BOX * len(pairs) * (len(models) + 0.6) + 1.0) as (figure, ((axis,),)):
        handles = {}
        for number, (label, cosines) in enumerate(models.items()):
            colour = MODEL_COLOURS[number]
            artists = axis.boxplot(
                [cosines[pair] for pair in pairs],
                positions=[row + (number - (len(models) - 1) / 2) * 0.36 for row in range(len(pairs))],
                orientation="horizontal",
                widths=0.3,
                whis=(5, 95),
                patch_artist=True,
                manage_ticks=False,
                flierprops={"marker": ".", "markersize": 2.5, "markeredgecolor": colour},
                medianprops={"color": "#000000"},
                boxprops={"facecolor": colour, "alpha": 0.55, "edgecolor": colour},
                whiskerprops={"color": colour},
                capprops={"color": colour},
            )
            handles[_short(label, NAME_LENGTH)] = artists["boxes"][0]
        axis.set_yticks(range(len(pairs)), [" – ".join(pair) for pair in pairs])
        axis.set_ylim(len(pairs) - 0.4, -0.6)
        axis.set_xlabel("cosine of one text's vectors under the two routes")
        axis.grid(axis="x", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        for row, pair in enumerate(pairs):
            if pair in tests:
                place = {"xycoords": axis.get_yaxis_transform(), "va": "center", "fontsize": 8}
                axis.annotate(p_value(tests[pair].p_holm), (1.01, row), **place)
        figure.legend(
            handles.values(), handles, loc="outside upper center", ncols=2, frameon=False, fontsize=8
        )
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=DOTS, metadata={"Software": None})
    return out.getvalue()


def _thinned(
    x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    keep = np.unique(np.linspace(0, len(x) - 1, POINTS_PER_CURVE).astype(int))
    return x[keep], y[keep]


def _short(label: str, length: int = 34) -> str:
    return label if len(label) <= length else f"{label[: length - 1]}…"


@contextmanager
def _drawing(width: float, height: float, rows: int = 1, columns: int = 1) -> Iterator[tuple[Any, Any]]:
    """Give a figure of this size in inches, and its axes, (rows, columns); close it at the end."""
    require("matplotlib", "report").use("Agg")  # draws into memory
    plt = require("matplotlib.pyplot", "report")
    with plt.rc_context(STYLE):
        shape: dict[str, Any] = {"figsize": (width, height), "squeeze": False, "layout": "constrained"}
        figure, axes = plt.subplots(rows, columns, **shape)
        try:
            yield figure, axes
        finally:
            plt.close(figure)


def svg_of(figure: Any) -> str:
    """Return a figure as SVG text."""
    out = io.StringIO()
    # Without a date, so that equal drawings are equal text.
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()

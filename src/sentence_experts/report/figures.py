"""Drawings of an evaluation as SVG text: histograms of similarity, ROC and precision-recall curves, heat map.

Models differ in colour (Okabe & Ito's palette, safe for colour-blind readers) and in line style.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import require

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

CELL = 0.55  # inches
Scores = Mapping[str, NDArray[np.float64]]  # model label -> (pairs,)


def histograms(scores: Scores, labels: NDArray[np.int64], thresholds: Mapping[str, float | None]) -> str:
    """A panel per model: cosines of linked and unlinked pairs, and the threshold of F1max."""
    plt = pyplot()
    rows = -(-len(scores) // PANELS_PER_ROW)
    columns = min(len(scores), PANELS_PER_ROW)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, columns, figsize=(max(2.4 * columns, 3.2), 2.2 * rows), squeeze=False, layout="constrained"
        )
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
            threshold = thresholds[label]
            if threshold is not None:
                axis.axvline(threshold, color="#333333", linewidth=1, linestyle=":")
            axis.set(title=_short(label), xlabel="cosine", yticks=[], xlim=(edges[0], edges[-1]))
        axes[0, 0].set_ylabel("share of pairs")
        axes[0, 0].legend(frameon=False, fontsize=8, handlelength=1.4)
        return svg_of(figure)


def curves(scores: Scores, labels: NDArray[np.int64], thresholds: Mapping[str, float | None]) -> str:
    """ROC curves, and precision against recall with a dot at F1max. Needs linked and unlinked pairs."""
    from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

    plt = pyplot()
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.4), layout="constrained")
        colours, styles = cycle(MODEL_COLOURS), cycle(LINE_STYLES)
        for label, values in scores.items():
            line: dict[str, Any] = {"color": next(colours), "linestyle": next(styles), "linewidth": 1.7}
            false_rate, true_rate, _ = roc_curve(labels, values)
            area = roc_auc_score(labels, values)
            left.plot(*_thinned(false_rate, true_rate), label=f"{_short(label)}  (AUC {area:.3f})", **line)
            precision, recall, _ = precision_recall_curve(labels, values, drop_intermediate=True)
            right.plot(*_thinned(recall, precision), **line)
            threshold = thresholds[label]
            if threshold is not None:
                called = values >= threshold
                found = (called & (labels == 1)).sum()
                right.plot(found / labels.sum(), found / called.sum(), "o", markersize=5, color=line["color"])
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
    labels: Sequence[str], gaps: Mapping[tuple[str, str], float], significant: Collection[tuple[str, str]]
) -> str:
    """Differences of all pairs of models, row minus column, written in the cells; a star if significant.

    `gaps` and `significant` hold each pair once, in either order. Blue is above zero, red below.
    """
    plt = pyplot()
    number = {label: index for index, label in enumerate(labels)}
    values = np.full((len(labels), len(labels)), np.nan)
    for (first, second), gap in gaps.items():
        values[number[first], number[second]], values[number[second], number[first]] = gap, -gap
    largest = max((abs(gap) for gap in gaps.values()), default=0.0) or 1.0
    starred = {*significant, *((second, first) for first, second in significant)}
    with plt.rc_context(STYLE):
        size = CELL * len(labels)
        figure, axis = plt.subplots(figsize=(size + 2.6, size + 1.6), layout="constrained")
        axis.imshow(values, cmap="RdBu", vmin=-2 * largest, vmax=2 * largest)  # pale enough to read
        for (row, column), gap in np.ndenumerate(values):
            if np.isfinite(gap):
                star = "*" if (labels[row], labels[column]) in starred else ""
                shown = f"{gap:+.3f}".replace("0.", ".", 1)
                text = axis.text(column, row, f"{shown}\n{star}".rstrip(), ha="center", va="center")
                text.set(fontsize=7.5, fontweight="bold" if star else "normal", linespacing=0.8)
        short = [_short(label) for label in labels]
        axis.set_xticks(range(len(labels)), short, rotation=40, ha="right", rotation_mode="anchor")
        axis.set_yticks(range(len(labels)), short)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        return svg_of(figure)


def _thinned(
    x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    keep = np.unique(np.linspace(0, len(x) - 1, POINTS_PER_CURVE).astype(int))
    return x[keep], y[keep]


def _short(label: str) -> str:
    return label if len(label) <= 34 else f"{label[:33]}…"


def pyplot() -> Any:
    """matplotlib's pyplot, which draws into memory.

    Raises:
        SentenceExpertsError: matplotlib is not installed.
    """
    matplotlib = require("matplotlib", "report")
    matplotlib.use("Agg")
    return require("matplotlib.pyplot", "report")


def svg_of(figure: Any) -> str:
    """A figure as SVG text; the figure is closed."""
    out = io.StringIO()
    # Without a date, so that equal drawings are equal text.
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    pyplot().close(figure)
    return out.getvalue()

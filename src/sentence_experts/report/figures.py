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
from sentence_experts.report.wording import p_value

if TYPE_CHECKING:
    from sentence_experts.evaluation.similarity import Similarity

MODEL_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
LINE_STYLES: tuple[Any, ...] = ("-", "--", "-.", (0, (1, 1)))
POINTS_PER_CURVE = 300
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "path",
    # Element ids come from this instead of random numbers, so that equal drawings are equal bytes.
    "svg.hashsalt": "sentence-experts",
}
CELL, BOX = 0.55, 0.34  # inches of a cell of a matrix, and of a box
DOTS = 160  # dots per inch
Scores = Mapping[str, NDArray[np.float64]]  # model label -> (pairs,)


def curves(scores: Scores, labels: NDArray[np.int64], thresholds: Mapping[str, float | None]) -> str:
    """Draw ROC curves, and precision against recall with a dot at F1max. Needs linked and unlinked pairs."""
    from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

    with _draw(7.6, 3.4, columns=2) as (figure, ((left, right),)):
        colours, styles = cycle(MODEL_COLOURS), cycle(LINE_STYLES)
        for label, values in scores.items():
            line: dict[str, Any] = {"color": next(colours), "linestyle": next(styles), "linewidth": 1.7}
            name = f"{_shorten(label)}  (AUC {roc_auc_score(labels, values):.3f})"
            left.plot(*_thin(*roc_curve(labels, values)[:2]), label=name, **line)
            precision, recall, _ = precision_recall_curve(labels, values, drop_intermediate=True)
            right.plot(*_thin(recall, precision), **line)
            if (threshold := thresholds[label]) is not None:
                called = values >= threshold
                hits = (called & (labels == 1)).sum()
                right.plot(hits / labels.sum(), hits / called.sum(), "o", markersize=5, color=line["color"])
        left.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
        right.axhline(labels.mean(), color="#999999", linewidth=0.8)
        for axis, height in ((left, 0.5), (right, labels.mean() - 0.02)):
            axis.annotate("chance", (0.52, height), color="#666666", fontsize=8, va="top")
            axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
        left.set(title="ROC", xlabel="false positive rate", ylabel="true positive rate")
        right.set(title="Precision and recall (dot: F1max)", xlabel="recall", ylabel="precision")
        figure.legend(loc="outside lower center", ncols=2)
        return svg_of(figure)


def matrix(
    labels: Sequence[str],
    values: NDArray[np.float64],
    texts: NDArray[np.object_],
    colours: str,
    limits: tuple[float, float],
) -> str:
    """Draw a square matrix with a text in each cell; wide `limits` of the colours keep them readable."""
    size = CELL * len(labels)
    with _draw(size + 2.6, size + 1.6) as (figure, ((axis,),)):
        axis.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1])
        for (row, column), text in np.ndenumerate(texts):
            axis.text(column, row, text, ha="center", va="center", fontsize=7.5, linespacing=0.8)
        short = [_shorten(label) for label in labels]
        axis.set_xticks(range(len(labels)), short, rotation=40, ha="right", rotation_mode="anchor")
        axis.set_yticks(range(len(labels)), short)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        return svg_of(figure)


def similarity_figure(similarity: Similarity) -> bytes:
    """Draw a PNG: for each pair of routes the cosines of one model or two, and the p-values, if any.

    Whiskers reach to the 5% and 95% quantiles.
    """
    by_model: dict[str, list[list[float]]] = {}
    for row in similarity.cosines.to_pylist():
        by_model.setdefault(row["model"], []).append(row["cosines"])
    pairs = similarity.pairs
    with _draw(7.2, BOX * len(pairs) * (len(by_model) + 0.6) + 1.0) as (figure, ((axis,),)):
        handles = []
        for number, cosines in enumerate(by_model.values()):
            colour = {"color": MODEL_COLOURS[number]}
            artists = axis.boxplot(
                cosines,
                positions=np.arange(len(pairs)) + (number - (len(by_model) - 1) / 2) * 0.36,
                orientation="horizontal",
                widths=0.3,
                whis=(5, 95),
                patch_artist=True,
                manage_ticks=False,
                flierprops={"marker": ".", "markersize": 2.5, "markeredgecolor": MODEL_COLOURS[number]},
                medianprops={"color": "#000000"},
                boxprops={"facecolor": MODEL_COLOURS[number], "alpha": 0.55},
                whiskerprops=colour,
                capprops=colour,
            )
            handles.append(artists["boxes"][0])
        axis.set_yticks(range(len(pairs)), [" – ".join(pair["routes"]) for pair in pairs])
        axis.set_ylim(len(pairs) - 0.4, -0.6)
        axis.set_xlabel("cosine of one text's vectors under the two routes")
        axis.grid(axis="x", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        for row, pair in enumerate(pairs):
            if "welch_less" in pair:
                place = {"xycoords": axis.get_yaxis_transform(), "va": "center", "fontsize": 8}
                axis.annotate(p_value(pair["welch_less"]["p_holm"]), (1.01, row), **place)
        names = [_shorten(label, 40) for label in by_model]
        figure.legend(handles, names, loc="outside upper center", ncols=2)
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=DOTS, metadata={"Software": None})
    return out.getvalue()


def _thin(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    keep = np.unique(np.linspace(0, len(x) - 1, POINTS_PER_CURVE).astype(int))
    return x[keep], y[keep]


def _shorten(label: str, length: int = 34) -> str:
    """Leave out the middle of a long label: names of models often differ in their end alone."""
    kept = (length - 1) // 2
    return label if len(label) <= length else f"{label[:kept]}…{label[-kept:]}"


@contextmanager
def _draw(width: float, height: float, columns: int = 1) -> Iterator[tuple[Any, Any]]:
    """Give a figure of this size in inches, and its axes, (1, columns); close it at the end."""
    require("matplotlib", "report").use("Agg")  # draws into memory
    plt = require("matplotlib.pyplot", "report")
    with plt.rc_context(STYLE):
        shape: dict[str, Any] = {"figsize": (width, height), "squeeze": False, "layout": "constrained"}
        figure, axes = plt.subplots(1, columns, **shape)
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

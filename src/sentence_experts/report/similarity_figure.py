"""The drawing of similarity between routes: a box per pair of routes and model (as MoTE's figure 3)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_experts.evaluation.similarity import Cosines, Pair, Welch
from sentence_experts.report.figures import MODEL_COLOURS, STYLE, pyplot
from sentence_experts.report.model_tables import p_text
from sentence_experts.storage import replacing

ROW = 0.34  # inches per box
DOTS = 160  # per inch
NAME_LENGTH = 40


def similarity_figure(models: Mapping[str, Cosines], tests: Mapping[Pair, Welch]) -> bytes:
    """A PNG: for each pair of routes the cosines of one model or two, and the p-values of `tests`, if any.

    Whiskers reach to the 5% and 95% quantiles.
    """
    plt = pyplot()
    pairs = list(next(iter(models.values())))
    height = ROW * len(pairs) * (len(models) + 0.6) + 1.0
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(7.2, height), layout="constrained")
        handles = []
        for number, (label, cosines) in enumerate(models.items()):
            at = [row + (number - (len(models) - 1) / 2) * 0.36 for row in range(len(pairs))]
            boxes = _boxes(axis, [cosines[pair] for pair in pairs], at, MODEL_COLOURS[number])
            handles.append((boxes, label if len(label) <= NAME_LENGTH else f"{label[: NAME_LENGTH - 1]}…"))
        axis.set_yticks(range(len(pairs)), [" – ".join(pair) for pair in pairs])
        axis.set_ylim(len(pairs) - 0.4, -0.6)
        axis.set_xlabel("cosine of one text's vectors under the two routes")
        axis.grid(axis="x", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        for row, pair in enumerate(pairs):
            if pair in tests:
                axis.annotate(
                    f"p {p_text(tests[pair].p_holm)}",
                    (1.01, row),
                    xycoords=axis.get_yaxis_transform(),
                    va="center",
                    fontsize=8,
                )
        boxes, names = zip(*handles, strict=True)
        figure.legend(boxes, names, loc="outside upper center", ncols=2, frameon=False, fontsize=8)
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=DOTS, metadata={"Software": None})
        plt.close(figure)
    return out.getvalue()


def write_similarity_figure(path: Path, models: Mapping[str, Cosines], tests: Mapping[Pair, Welch]) -> None:
    """Write `similarity_figure` to a file, completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(similarity_figure(models, tests))


def _boxes(axis: Any, values: list[Any], at: list[float], colour: str) -> Any:
    drawn = axis.boxplot(
        values,
        positions=at,
        orientation="horizontal",
        widths=0.3,
        whis=(5, 95),
        patch_artist=True,
        manage_ticks=False,
        flierprops={"marker": ".", "markersize": 2.5, "markerfacecolor": colour, "markeredgecolor": "none"},
        medianprops={"color": "#000000"},
        boxprops={"facecolor": colour, "alpha": 0.55, "edgecolor": colour},
        whiskerprops={"color": colour},
        capprops={"color": colour},
    )
    return drawn["boxes"][0]

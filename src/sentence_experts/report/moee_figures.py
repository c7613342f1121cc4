"""Drawings of an analysis of routing weights as SVG text (MoEE, figures 2, 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sentence_experts.moee.vectors import PARTS
from sentence_experts.report.figures import MODEL_COLOURS, STYLE, pyplot, svg_of

CELL = 0.42  # inches
SHARES = {
    "both_right": "both right",
    "only_hidden": "only HS right",
    "only_routing": "only RW right",
    "both_wrong": "both wrong",
}


def prompt_matrix(sides: Sequence[str], matrix: Sequence[Sequence[float]]) -> str:
    """Spearman's correlations between all parts and prompts, written in the cells (figure 4)."""
    plt = pyplot()
    size = CELL * len(sides)
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(size + 2.2, size + 1.6), layout="constrained")
        axis.imshow(np.array(matrix), cmap="Blues", vmin=0, vmax=1.6)  # pale enough to read
        for (row, column), value in np.ndenumerate(np.array(matrix)):
            text = f"{value:.2f}".replace("0.", ".")
            axis.text(column, row, text, ha="center", va="center", fontsize=7)
        axis.set_xticks(range(len(sides)), sides, rotation=60, ha="right", fontsize=8)
        axis.set_yticks(range(len(sides)), sides, fontsize=8)
        return svg_of(figure)


def stability(rows: Sequence[Mapping[str, Any]], prompts: int) -> str:
    """The correlation with human scores: mean and standard deviation over the prompts (figure 5)."""
    plt = pyplot()
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(max(4.0, 1.3 * len(datasets) + 1.5), 2.8), layout="constrained")
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
    """Shares of the pairs of each dataset that both parts, one or none is right about (figure 2)."""
    plt = pyplot()
    colours = ("#bbbbbb", MODEL_COLOURS[0], MODEL_COLOURS[1], "#555555")
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(6.4, 0.36 * len(datasets) + 1.3), layout="constrained")
        left = np.zeros(len(datasets))
        for (key, name), colour in zip(SHARES.items(), colours, strict=True):
            values = np.array([shares[key] for shares in datasets.values()])
            axis.barh(list(datasets), values, left=left, color=colour, label=name, height=0.7)
            left += values
        axis.invert_yaxis()
        axis.set(xlim=(0, 1), xlabel="share of the pairs")
        figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)
        return svg_of(figure)

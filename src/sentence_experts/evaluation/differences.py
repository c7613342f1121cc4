"""Differences of every two models in one metric, with intervals, corrected p-values and equivalence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from sentence_experts.evaluation.results import Difference, View
from sentence_experts.evaluation.statistics import Runs, estimate
from sentence_experts.evaluation.wilcoxon import holm


def compared(
    values: Mapping[str, float | None],
    runs: Mapping[str, Runs],
    view: View,
    metric: str,
    margin: float,
) -> tuple[Difference, ...]:
    """Each model minus each later one, and what the models' runs tell of the difference.

    Args:
        values: label -> the metric of the model; None if it is undefined.
        runs: label -> the runs of the model; empty for differences without intervals.
        view, metric: what they are of.
        margin: two models are equivalent if the interval of their difference lies within plus and minus this.
    """
    differences = []
    for (first, one), (second, other) in combinations(values.items(), 2):
        value = None if one is None or other is None else one - other
        known = value is not None and first in runs
        estimated = estimate(*runs[first].minus(runs[second])) if known else None
        if estimated is None:
            differences.append(Difference(first, second, view, metric, value))
            continue
        bounds = estimated.interval()
        equivalent = -margin < bounds.low and bounds.high < margin
        differences.append(
            Difference(first, second, view, metric, value, bounds, estimated.p_value(), None, equivalent)
        )
    corrected = iter(holm([each.p_value for each in differences if each.p_value is not None]))
    return tuple(
        each if each.p_value is None else replace(each, p_holm=next(corrected)) for each in differences
    )

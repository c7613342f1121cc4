"""Several runs of one model, trained with different seeds, as one model.

One run of training is one draw of its seed: a gap between two single runs may be the seeds' own. Metrics are
therefore means over runs, shown with their standard deviation, and intervals cover the papers and the seeds
(`evaluation.statistics`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sentence_experts.evaluation.measure import Measured, with_intervals
from sentence_experts.evaluation.results import PairEvaluation, PairMetrics
from sentence_experts.evaluation.statistics import Bootstrapped, Replicates

SEEDS_NEEDED = 3  # fewer support no claim that one way of training beats another


def mean_over_runs(runs: Sequence[Measured]) -> Measured:
    """The mean of several runs measured on the same pairs with the same draws; one run stays as it is."""
    if len(runs) == 1:
        return runs[0]
    found, drawn = {}, {}
    for view in runs[0].figures:
        found[view] = _mean_figures([run.figures[view] for run in runs])
        if runs[0].drawn:
            drawn[view] = _mean_replicates(
                [run.drawn[view] for run in runs], [run.figures[view] for run in runs]
            )
            found[view] = with_intervals(found[view], drawn[view])
    return Measured(found, drawn)


def too_few_seeds(found: PairEvaluation) -> list[str]:
    """The labels of the trained models with fewer than `SEEDS_NEEDED` runs."""
    return [model.label for model in found.models if model.trained and model.seeds < SEEDS_NEEDED]


def _mean_figures(runs: Sequence[PairMetrics]) -> PairMetrics:
    means: dict[str, float | None] = {}
    spread: dict[str, float | None] = {}
    for name in runs[0].metrics:
        known = [value for run in runs if (value := run.metrics[name]) is not None]
        defined = len(known) == len(runs)
        means[name] = float(np.mean(known)) if defined else None
        spread[name] = float(np.std(known, ddof=1)) if defined else None
    return PairMetrics(runs[0].pairs, runs[0].positives, means, spread=spread)


def _mean_replicates(drawn: Sequence[Bootstrapped], runs: Sequence[PairMetrics]) -> Bootstrapped:
    means = {}
    for name in drawn[0]:
        values = [value for run in runs if (value := run.metrics[name]) is not None]
        means[name] = Replicates(
            np.mean([each[name].by_papers for each in drawn], axis=0),
            np.mean([each[name].by_pairs for each in drawn], axis=0),
            (tuple(values),) if len(values) == len(runs) else (),
        )
    return means

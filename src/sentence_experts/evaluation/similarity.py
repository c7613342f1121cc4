"""How alike the vectors of one text are under different routes, and whether one model's are less so.

MoTE, section 5.2: each text is encoded with every route, and for each pair of routes the cosines of the two
vectors are taken, one a text. A model that specialises more has lower ones (figure 3, equation 1). The same
question is asked of domain tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.errors import InputError, RouteError
from sentence_experts.evaluation.wilcoxon import holm
from sentence_experts.models.routing.route_classifier import AUTO

if TYPE_CHECKING:
    from sentence_experts.encoding.encoder import BatchEncoder

Pair = tuple[str, str]
Cosines = Mapping[Pair, NDArray[np.float64]]  # two routes -> (texts,)

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Below this a standard deviation is rounding, as between experts that are still copies of each other.
NO_SPREAD = 1e-6


@dataclass(frozen=True)
class Welch:
    """A one-sided Welch test; None where neither side has any spread.

    Attributes:
        difference: the first mean minus the second.
        p_value: how likely a difference so far below 0 is, or farther, if the means are equal.
        p_holm: the same, corrected for the number of pairs of routes.
    """

    difference: float
    p_value: float | None
    p_holm: float | None = None


def chosen_texts(
    texts: Sequence[str], sample: int | None = None, seed: int = 0
) -> tuple[list[str], dict[str, int]]:
    """The texts to measure on, in their order, and how many were set aside and why.

    Args:
        texts: all texts.
        sample: at most so many, drawn at random; None for all.
        seed: of the draw.

    Raises:
        InputError: fewer than two texts are left.
    """
    written = [text for text in texts if text.strip()]
    distinct = list(dict.fromkeys(written))  # a text that is there twice says nothing new
    aside = {"empty": len(texts) - len(written), "repeated": len(written) - len(distinct)}
    if len(distinct) < 2:
        raise InputError(f"{len(distinct)} texts that are not empty; distributions need at least two")
    if sample is not None and sample < len(distinct):
        rows = np.random.default_rng(seed).choice(len(distinct), sample, replace=False)
        distinct = [distinct[row] for row in sorted(rows)]
    return distinct, aside


def comparable_routes(encoder: BatchEncoder, wanted: Sequence[str] | None = None) -> list[str]:
    """The routes to compare: those that are wanted, or all, each instruction or token once.

    Raises:
        RouteError: one is not known, or there are fewer than two.
    """
    known = {name: prompt for name, prompt in encoder.routes.items() if name != AUTO}
    if unknown := [name for name in wanted or () if name not in known]:
        raise RouteError(
            f"{encoder.name} has no route {unknown[0]!r}; its routes: {', '.join(known) or 'none'}"
        )
    if wanted:
        routes = list(dict.fromkeys(wanted))
    else:  # other names of the default route come first, and stand for nothing of their own
        routes = list({prompt: name for name, prompt in known.items()}.values())
    if len(routes) < 2:
        raise RouteError(
            f"{encoder.name}: similarity is measured between two routes or more; there are "
            f"{len(routes)}: {', '.join(routes) or 'none'}"
        )
    return routes


def inter_route_cosines(
    encoder: BatchEncoder, texts: Sequence[str], routes: Sequence[str]
) -> dict[Pair, NDArray[np.float64]]:
    """The cosine of each text's vectors under each pair of routes, in the routes' order.

    Raises:
        RouteError: the model does not have one of the routes.
    """
    from sentence_experts.encoding.encoder import cosines

    for route in routes:
        encoder.chosen_route(route)
    vectors = {route: encoder.encode(texts, route) for route in routes}
    return {
        (first, second): cosines(vectors[first], vectors[second]) for first, second in combinations(routes, 2)
    }


def described(values: NDArray[np.float64]) -> dict[str, Any]:
    """Mean, standard deviation (of a sample) and quantiles of one pair's cosines."""
    quantiles = np.quantile(values, QUANTILES)
    return {
        "mean": float(values.mean()),
        "sd": float(values.std(ddof=1)),
        "quantiles": {f"{share:g}": float(value) for share, value in zip(QUANTILES, quantiles, strict=True)},
    }


def welch_less(first: NDArray[np.float64], second: NDArray[np.float64]) -> Welch:
    """Whether the first mean is below the second (MoTE, equation 1): unequal variances, one-sided.

    As in the paper the two samples are taken for independent, though the texts are the same.
    """
    from scipy.stats import ttest_ind_from_stats

    sides = [(each.mean(), each.std(ddof=1), len(each)) for each in (first, second)]
    difference = float(sides[0][0] - sides[1][0])
    if max(sd for _, sd, _ in sides) < NO_SPREAD:
        return Welch(difference, None)
    test = ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False, alternative="less")
    return Welch(difference, float(test.pvalue))


def welch_by_pair(cosines: Cosines, others: Cosines) -> dict[Pair, Welch]:
    """`welch_less` for each pair of routes, corrected for their number (Holm)."""
    found = {pair: welch_less(values, others[pair]) for pair, values in cosines.items()}
    tested = {pair: test.p_value for pair, test in found.items() if test.p_value is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {pair: Welch(test.difference, test.p_value, corrected.get(pair)) for pair, test in found.items()}


def as_json(models: Mapping[str, Cosines], tests: Mapping[Pair, Welch]) -> list[dict[str, Any]]:
    """One dict a pair of routes: each model's figures, and the test where there is another model."""
    first = next(iter(models.values()))
    rows: list[dict[str, Any]] = []
    for pair in first:
        row: dict[str, Any] = {"routes": list(pair)}
        row["models"] = {label: described(cosines[pair]) for label, cosines in models.items()}
        if pair in tests:
            row["welch_less"] = vars(tests[pair])
        rows.append(row)
    return rows

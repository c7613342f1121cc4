"""Measures of how vectors find texts alike by a label column: "more like this", and conflicting pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from sentence_experts.evaluation.statistics import Estimate, Runs, ScoredPairs, estimate, runs_of
from sentence_experts.pairs.conflicts import Conflicts
from sentence_experts.pairs.labels import Labels, Rows

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]

TOP = 10  # texts in a list of "more like this"
_AT_ONCE = 500  # queries


@dataclass(frozen=True)
class MoreLikeThis:
    """The nearest others of texts under a route, judged by the labels that they share.

    A text that shares no label with any text of another group is no query.

    Attributes:
        queries: rows of the texts that are queries, shape (queries,).
        ndcg: nDCG@10 of each query.
        recall: recall@10 of each query, of at most 10 alike texts (the capped recall of BEIR).
        chance: the nDCG@10 that a random order has on average.
    """

    queries: Rows
    ndcg: Floats
    recall: Floats
    chance: Floats


def more_like_this(vectors: Vectors, labels: Labels, groups: Rows) -> MoreLikeThis:
    """Rank, for each labelled text, the labelled texts of other groups by cosine.

    Args:
        vectors: vectors of length 1 of all texts, (texts, dimensions).
        labels: the labels of the same texts under the route.
        groups: the group of each text, (texts,).
    """
    kept = np.flatnonzero(labels.labelled)
    vectors, labels, groups = vectors[kept], labels.rows(kept), groups[kept]
    discounts = 1 / np.log2(np.arange(2, TOP + 2))
    best = np.cumsum(discounts)
    parts = [(np.empty(0, np.int64), *[np.empty(0)] * 3)]
    for start in range(0, len(kept), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, len(kept)))
        apart = groups[rows][:, None] != groups
        relevant = labels.sharing(rows, np.arange(len(kept))) & apart
        counts, candidates = relevant.sum(axis=1), apart.sum(axis=1)
        scores = np.where(apart, vectors[rows] @ vectors.T, -np.inf)
        top = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
        hits = np.take_along_axis(relevant, top, axis=1)
        ideal = best[np.minimum(counts, TOP) - 1]
        at_random = best[np.maximum(np.minimum(candidates, TOP), 1) - 1]
        chance = counts / np.maximum(candidates, 1) * at_random / ideal
        gained = hits @ discounts[: top.shape[1]] / ideal
        found = hits.sum(axis=1) / np.maximum(np.minimum(counts, TOP), 1)
        asked = counts > 0
        parts.append((kept[rows[asked]], gained[asked], found[asked], chance[asked]))
    return MoreLikeThis(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def mean_over_groups(values: Floats, groups: Rows) -> Estimate:
    """Return the mean of values with a standard error that allows for texts of one group.

    Groups vary; the texts that are ranked, and their labels, are taken as they are.
    """
    count = len(np.unique(groups))
    _, number = np.unique(groups, return_inverse=True)
    sums = np.bincount(number, values - values.mean())
    error = float(np.sqrt((sums**2).sum() * count / max(count - 1, 1)) / len(values))
    return Estimate(float(values.mean()), error, max(count - 1, 1))


def conflict_runs(vectors: Mapping[str, Vectors], conflicts: Sequence[Conflicts]) -> dict[str, Runs]:
    """Return the ROC-AUC of conflicting pairs per route, its mean over the other routes.

    Positives are pairs alike by the route and unlike by another one, negatives the other way around.

    Args:
        vectors: route -> vectors of all texts, (texts, dimensions), of length 1.
        conflicts: the pairs of every two routes.
    """
    runs = {}
    for route, own in vectors.items():
        sets = {}
        for each in conflicts:
            if route not in (each.one, each.other):
                continue
            other = each.other if route == each.one else each.one
            alike, unlike = (each.by_one, each.by_other)[:: 1 if route == each.one else -1]
            first, second = np.concatenate([alike, unlike]).T
            scores = np.einsum("ij,ij->i", own[first], own[second]).astype(np.float64)
            truth = np.repeat([1, 0], [len(alike), len(unlike)])
            sets[other] = ScoredPairs(scores, truth, first.astype(str).tolist(), second.astype(str).tolist())
        if sets:
            runs[route] = runs_of(sets, replicates=1)[2]["roc_auc"]
    return runs


@dataclass(frozen=True)
class RouteGain:
    """A route's figures on texts that training has not seen, beside the base's.

    Attributes:
        route: name of the route.
        queries: number of texts whose like was searched.
        chance: nDCG@10 of a random order.
        base_ndcg, ndcg: nDCG@10 of the base and of the route.
        base_recall, recall: recall@10 of the base and of the route, of at most 10 alike texts.
        gain: the difference of nDCG@10, with its standard error.
        base_auc, auc: ROC-AUC of conflicting pairs with their standard errors; None without any.
        conflicts: number of conflicting pairs.
    """

    route: str
    queries: int
    chance: float
    base_ndcg: float
    ndcg: float
    base_recall: float
    recall: float
    gain: Estimate
    base_auc: Estimate | None = None
    auc: Estimate | None = None
    conflicts: int = 0

    @classmethod
    def from_json(cls, figures: Mapping[str, Any]) -> RouteGain:
        """Return the figures that `dataclasses.asdict` made plain."""
        return TypeAdapter(cls).validate_python(figures)


def measure_gains(
    base: Vectors,
    vectors: Mapping[str, Vectors],
    labels: Mapping[str, Labels],
    groups: Rows,
    conflicts: Sequence[Conflicts],
) -> list[RouteGain]:
    """Measure each route beside the base, whose vectors know no route.

    Args:
        base: the base's vectors of the texts, (texts, dimensions), of length 1.
        vectors: route -> its vectors, likewise.
        labels: route -> labels of the same texts.
        groups: the group of each text, (texts,).
        conflicts: pairs that two routes judge in opposite ways.
    """
    before = conflict_runs(dict.fromkeys(vectors, base), conflicts)
    after = conflict_runs(vectors, conflicts)
    gains = []
    for route, own in vectors.items():
        old = more_like_this(base, labels[route], groups)
        new = more_like_this(own, labels[route], groups)
        if not len(new.queries):
            continue
        gains.append(
            RouteGain(
                route=route,
                queries=len(new.queries),
                chance=float(new.chance.mean()),
                base_ndcg=float(old.ndcg.mean()),
                ndcg=float(new.ndcg.mean()),
                base_recall=float(old.recall.mean()),
                recall=float(new.recall.mean()),
                gain=mean_over_groups(new.ndcg - old.ndcg, groups[new.queries]),
                base_auc=estimate(before[route]) if route in before else None,
                auc=estimate(after[route]) if route in after else None,
                conflicts=sum(2 * len(each.by_one) for each in conflicts if route in (each.one, each.other)),
            )
        )
    return gains

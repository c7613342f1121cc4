"""Measures of how vectors find texts alike by a label column: "more like this", and conflicting pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from scipy.sparse import csr_array, vstack

from sentence_experts.evaluation.estimates import Estimate, Runs, ScoredPairs, estimate
from sentence_experts.evaluation.statistics import runs_of
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
        losses: what nDCG@10 of each query loses if one text is not ranked, (queries, texts). A query that
            then looks for nothing loses what it has above the mean.
    """

    queries: Rows
    ndcg: Floats
    recall: Floats
    chance: Floats
    losses: csr_array


def more_like_this(vectors: Vectors, labels: Labels, groups: Rows) -> MoreLikeThis:
    """Rank, for each labelled text, the labelled texts of other groups by cosine.

    Args:
        vectors: vectors of length 1 of all texts, (texts, dimensions).
        labels: the labels of the same texts under the route.
        groups: the group of each text, (texts,).
    """
    size, kept = len(vectors), np.flatnonzero(labels.labelled)
    vectors, labels, groups = vectors[kept], labels.rows(kept), groups[kept]
    parts = [(np.empty(0, np.int64), *[np.empty(0)] * 3)]
    lost = [(*np.empty((2, 0), np.int64), np.empty(0), np.empty(0, bool))]
    queries = 0
    for start in range(0, len(kept), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, len(kept)))
        apart = groups[rows][:, None] != groups
        relevant = labels.sharing(rows, np.arange(len(kept))) & apart
        scores = np.where(apart, vectors[rows] @ vectors.T, -np.inf)
        asked = relevant.any(axis=1)
        rows, relevant, scores = rows[asked], relevant[asked], scores[asked]
        counts, candidates = relevant.sum(axis=1), apart[asked].sum(axis=1)
        top = np.argsort(-scores, axis=1, kind="stable")[:, : TOP + 1]
        hits = np.take_along_axis(relevant, top, axis=1)
        ndcg = compute_ndcg(hits, counts)
        found = hits[:, :TOP].sum(axis=1) / np.minimum(counts, TOP)
        at_random = _BEST[np.minimum(candidates, TOP)]
        chance = counts / candidates * at_random / _BEST[np.minimum(counts, TOP)]
        parts.append((kept[rows], ndcg, found, chance))
        for query, text, loss, is_last in _drop_each(relevant, top, hits):
            lost.append((queries + query, kept[text], loss, is_last))
        queries += len(rows)
    query, text, loss, is_last = (np.concatenate(each) for each in zip(*lost, strict=True))
    rows, ndcg, recall, chance = (np.concatenate(each) for each in zip(*parts, strict=True))
    loss[is_last] -= ndcg.mean() if queries else 0.0
    losses = csr_array((loss, (query, text)), shape=(queries, size))
    return MoreLikeThis(rows, ndcg, recall, chance, losses)


_DISCOUNTS = 1 / np.log2(np.arange(2, TOP + 2))
_BEST = np.concatenate([[0.0], np.cumsum(_DISCOUNTS)])
"""The best sum of discounted hits with 0, 1, 2, ... relevant texts."""


def compute_ndcg(hits: NDArray[np.bool_], counts: NDArray[np.int64]) -> Floats:
    """Return nDCG@10 of lists, (lists, places), that look for some numbers of texts; 0 for none.

    Source: Romero 2025, appendix C.1.
    """
    first = hits[:, :TOP]
    ideal = _BEST[np.minimum(counts, TOP)]
    ndcg: Floats = first @ _DISCOUNTS[: first.shape[1]] / np.where(counts > 0, ideal, 1.0)
    return ndcg


def _drop_each(
    relevant: NDArray[np.bool_], top: Rows, hits: NDArray[np.bool_]
) -> Iterator[tuple[Rows, Rows, Floats, NDArray[np.bool_]]]:
    """Yield queries, texts, what nDCG@10 loses if the text is not ranked, and whether nothing is left to look
    for; other losses are 0.

    Args:
        relevant: the texts that each query looks for, (queries, texts).
        top: the first texts of each list, one more than `TOP`.
        hits: whether these are relevant.
    """
    counts, each = relevant.sum(axis=1), np.arange(len(relevant))
    ndcg = compute_ndcg(hits, counts)
    for place in range(min(TOP, top.shape[1])):  # those below move up
        left = counts - hits[:, place]
        yield each, top[:, place], ndcg - compute_ndcg(np.delete(hits, place, axis=1), left), left == 0
    # Further down, a text counts in the best order alone, where that has room.
    below = relevant & (counts <= TOP)[:, None]
    np.put_along_axis(below, top[:, :TOP], False, axis=1)
    query, text = np.nonzero(below)
    left = counts[query] - 1
    yield query, text, ndcg[query] - compute_ndcg(hits[query], left), left == 0


def mean_gain(new: Sequence[MoreLikeThis], old: Sequence[MoreLikeThis], groups: Rows) -> Estimate:
    """Return the difference of the mean nDCG@10 over all queries of some routes, with its standard error.

    A text varies both as a query and among the ranked texts, so the error is the jackknife's over groups. It
    counts twice what two texts do together (Efron & Stein, Annals of Statistics 1981): the rank of one for
    the other. So the squares of these are subtracted.

    Args:
        new: the texts under each route, as one model ranks them.
        old: likewise, as another one does.
        groups: the group of each text, (texts,).
    """
    own = np.concatenate([one.ndcg - other.ndcg for one, other in zip(new, old, strict=True)])
    if not len(own):
        return Estimate(math.nan, math.nan, 1)
    value, queries = own.mean(), np.concatenate([each.queries for each in new])
    losses = vstack([one.losses - other.losses for one, other in zip(new, old, strict=True)])
    _, number = np.unique(groups, return_inverse=True)
    members = csr_array((np.ones(len(groups)), (np.arange(len(groups)), number)))
    # Of a group of queries and a group of ranked texts; the product itself is stored by columns.
    together = (members[queries].T @ losses @ members).tocsr()
    as_queries = np.bincount(number[queries], own - value, members.shape[1])
    shifts = as_queries + together.sum(axis=0)
    varying = np.union1d(number[queries], together.indices)
    count, shifts = len(varying), shifts[varying]
    variance = ((shifts - shifts.mean()) ** 2).sum() - (together.data**2).sum()
    variance = max(variance, (as_queries**2).sum()) * count / max(count - 1, 1)
    return Estimate(float(value), float(variance**0.5) / len(own), max(count - 1, 1))


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
                gain=mean_gain([new], [old], groups),
                base_auc=estimate(before[route]) if route in before else None,
                auc=estimate(after[route]) if route in after else None,
                conflicts=sum(2 * len(each.by_one) for each in conflicts if route in (each.one, each.other)),
            )
        )
    return gains

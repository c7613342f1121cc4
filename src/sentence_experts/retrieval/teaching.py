"""A kind of similarity from examples: a linear map near the identity.

A map turns a vector x into W x, W = I + D. It is fitted so that an example and those similar to it have a
larger cosine than it has with those that are not similar: softmax cross-entropy over the latter, at
temperature 0.1, plus a penalty on the squares of D. The gradient lies in the span of the examples, so D does
too, and what the examples do not show stays as it was. With few examples the penalty keeps W near I.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.models.pooling import unit
from sentence_experts.retrieval.head_cosines import TaughtMap

Mask = NDArray[np.bool_]

# The best in benchmarks/results/few_shot_settings.md, on other data than what few_shot.md reports.
PENALTY = 0.01
TEMPERATURE = 0.1
STEPS, RATE = 80, 0.05
AT_ONCE = 150  # examples per step
FOLDS = 5
# The folds share training examples, so the variance of their mean is larger than that of independent figures:
# 1/J + n2/n1 instead of 1/J (Nadeau and Bengio 2003, Inference for the Generalization Error, section 3).
SHARED = 1 + FOLDS / (FOLDS - 1)


@dataclass(frozen=True)
class Examples:
    """Papers that are similar to something, or not.

    Attributes:
        vectors: vectors of length 1, (examples, dimensions).
        similar: whether each is similar, (examples,).
        groups: number of the query or paper that each was judged against, (examples,); -1 for none, where
            the similar ones are similar to each other.
        anchors: the vectors of these queries and papers, (groups, dimensions), of length 1.
        papers: row of each one's paper, (examples,), by which papers are held out; None: no paper is judged
            twice.
    """

    vectors: Vectors
    similar: Mask
    groups: NDArray[np.int64]
    anchors: Vectors
    papers: NDArray[np.int64] | None = None

    def only(self, kept: Any) -> Examples:
        """Return some of the examples."""
        return Examples(
            self.vectors[kept],
            self.similar[kept],
            self.groups[kept],
            self.anchors,
            None if self.papers is None else self.papers[kept],
        )

    def with_anchors(self) -> Examples:
        """Return the examples with those that they were judged against, which are similar to themselves."""
        judged = np.unique(self.groups[self.groups >= 0])
        return Examples(
            np.concatenate([self.vectors, self.anchors[judged]]),
            np.append(self.similar, np.ones(len(judged), bool)),
            np.append(self.groups, judged),
            self.anchors,
        )


def fit_head(examples: Examples, penalty: float = PENALTY) -> TaughtMap:
    """Fit a linear map to examples; the identity if no group has both similar papers and others."""
    examples = examples.with_anchors()
    basis, coordinates = np.linalg.qr(examples.vectors.T.astype(np.float64))
    rows, width = coordinates.T, basis.shape[1]
    change = np.zeros((width, width))
    first, second = np.zeros_like(change), np.zeros_like(change)
    rng = np.random.default_rng(0)
    for step in range(1, STEPS + 1):
        chosen = np.arange(len(rows))
        if len(rows) > AT_ONCE:  # whole groups, as far as they fit
            places = rng.random(int(examples.groups.max()) + 2)[examples.groups]
            chosen = np.lexsort((rng.random(len(rows)), places))[:AT_ONCE]
        slope = _slope(rows[chosen], change, examples.similar[chosen], examples.groups[chosen])
        slope += 2 * penalty * change
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2  # Adam
        pace = np.sqrt(second / (1 - 0.99**step)) + 1e-8
        change -= RATE * (1 - step / (STEPS + 1)) * first / (1 - 0.9**step) / pace
    weight = np.eye(len(basis)) + basis @ change @ basis.T
    return TaughtMap(weight=weight.astype(np.float32))


def _slope(rows: NDArray[Any], change: NDArray[Any], similar: Mask, groups: NDArray[Any]) -> NDArray[Any]:
    """Return the gradient of the loss by D, both in the basis of the examples, (width, width)."""
    together = (groups[:, None] == groups) & similar[:, None]
    alike, unlike = together & similar, together & ~similar
    np.fill_diagonal(alike, False)
    alike &= unlike.any(axis=1)[:, None]
    if not alike.any():
        return np.zeros_like(change)
    mapped = rows + rows @ change.T
    lengths = np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), 1e-12)
    mapped = mapped / lengths
    scores = mapped @ mapped.T / TEMPERATURE  # at most 10, so exp is safe
    others = np.where(unlike, np.exp(scores), 0.0)
    total = np.maximum(others.sum(axis=1, keepdims=True), 1e-30)
    lost = np.where(alike, 1 / (1 + np.exp(scores) / total), 0.0) / alike.sum()
    by_score = others * (lost.sum(axis=1, keepdims=True) / total) - lost
    by_mapped = (by_score + by_score.T) @ mapped / TEMPERATURE
    along = (by_mapped * mapped).sum(axis=1, keepdims=True)
    slope: NDArray[Any] = ((by_mapped - along * mapped) / lengths).T @ rows
    return slope


@dataclass(frozen=True)
class Validated:
    """Cross-validated ROC-AUC: the chance that a similar paper is nearer than one that is not.

    Attributes:
        untaught, auc: ROC-AUC on examples that were held out, before teaching and after; NaN without pairs.
        low, high: 95% interval of `auc`.
    """

    untaught: float
    auc: float
    low: float
    high: float


def cross_validate(examples: Examples) -> Validated:
    """Compare the map with the untaught route on examples that were held out, in five folds.

    Five or more queries are held out whole, so that the figures hold for other queries too.
    """
    before, after = (np.full(len(examples.similar), np.nan) for _ in range(2))
    for training, held in _folds(examples):
        anchors, papers = _anchors_of(examples, training, held), examples.vectors[held]
        before[held] = np.einsum("ij,ij->i", papers, anchors)
        taught = fit_head(examples.only(training))
        after[held] = np.einsum("ij,ij->i", taught.apply(papers), taught.apply(anchors))
    untaught, auc = (roc_auc(scores, examples) for scores in (before, after))
    # Judgements of one paper against several queries count as one: they may all be right or wrong together.
    repeats = len(examples.similar) / len(np.unique(_papers_of(examples)))
    return Validated(untaught, auc, **_interval(auc, count_classes(examples), repeats * SHARED))


def _folds(examples: Examples) -> Iterator[tuple[Mask, Mask]]:
    """Yield which examples are learned from, and which are held out, with their papers.

    Whole groups are held out if there are enough, else parts of each.
    """
    groups, papers = np.unique(examples.groups), _papers_of(examples)
    rng = np.random.default_rng(0)
    if len(groups) >= FOLDS and groups[0] >= 0:
        numbers = rng.permutation(len(groups))[np.searchsorted(groups, examples.groups)] % FOLDS
        folds = [(~held & ~np.isin(papers, papers[held]), held) for held in _each_fold(numbers)]
        # Where the same papers are judged against all queries, other queries have none that are left.
        if all(_has_both(examples.similar[training]) for training, _ in folds):
            yield from folds
            return
    _, first, of_paper = np.unique(papers, return_index=True, return_inverse=True)
    numbers = np.zeros(len(papers), np.int64)
    place = 0  # goes on through the groups, so that folds are of one size
    for group in groups:
        for similar in (True, False):
            own = np.flatnonzero((examples.groups == group) & (examples.similar == similar))
            own = own[np.isin(own, first)]
            numbers[rng.permutation(own)] = place + np.arange(len(own))
            place += len(own)
    for held in _each_fold(numbers[first][of_paper] % FOLDS):
        yield ~held, held


def _papers_of(examples: Examples) -> NDArray[np.int64]:
    return np.arange(len(examples.similar)) if examples.papers is None else examples.papers


def _each_fold(numbers: NDArray[np.int64]) -> Iterator[Mask]:
    masks = (numbers == fold for fold in range(FOLDS))
    return (held for held in masks if held.any() and not held.all())


def _has_both(similar: Mask) -> bool:
    return bool(similar.any() and not similar.all())


def _anchors_of(examples: Examples, training: Mask, held: Mask) -> Vectors:
    """Return what each held-out example is compared with: its query, else the mean of the similar ones."""
    kept = examples.similar & training & (examples.groups < 0)
    if not kept.any():
        kept = examples.similar & training
    mean = unit(examples.vectors[kept].mean(axis=0, keepdims=True)) if kept.any() else examples.anchors[:1]
    anchors: Vectors = np.concatenate([examples.anchors, mean])[examples.groups[held]]  # -1 is the mean
    return anchors


def roc_auc(scores: NDArray[Any], examples: Examples) -> float:
    """Return the share of pairs of one group whose similar paper has the larger score; ties count half."""
    right, pairs = 0.0, 0
    for group in np.unique(examples.groups):
        own = (examples.groups == group) & np.isfinite(scores)
        positive, negative = scores[own & examples.similar], scores[own & ~examples.similar]
        gaps = positive[:, None] - negative
        right += float((gaps > 0).sum() + 0.5 * (gaps == 0).sum())
        pairs += gaps.size
    return right / pairs if pairs else float("nan")


def count_classes(examples: Examples) -> list[tuple[int, int]]:
    """Return the numbers of similar papers and of others of each group."""
    groups = [examples.similar[examples.groups == group] for group in np.unique(examples.groups)]
    return [(int(own.sum()), int((~own).sum())) for own in groups]


def _interval(auc: float, counts: Sequence[tuple[int, int]], factor: float = 1.0) -> dict[str, float]:
    """Return the 95% interval of a ROC-AUC that also holds near 1 (Newcombe 2006, method 5).

    `counts` are the numbers of positives and negatives of each group. Only pairs of one group are compared,
    so the variance is as of a mean over groups which weighs each by its pairs, times a factor.
    """
    pairs = sum(positives * negatives for positives, negatives in counts)
    if not np.isfinite(auc) or not pairs:
        return {"low": 0.0, "high": 1.0}
    grid = np.linspace(0, 1, 10_001)
    shape = (1 - grid) / (2 - grid) + grid / (1 + grid)
    spread = sum(own[0] * own[1] * (1 + (sum(own) / 2 - 1) * shape) for own in counts if all(own))
    errors = 1.96 * np.sqrt(grid * (1 - grid) * spread * factor) / pairs
    inside = grid[np.abs(grid - auc) <= errors + 1e-9]
    return {"low": float(inside[0]), "high": float(inside[-1])}


def number_groups(keys: Sequence[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """Return the number of each key among the different ones, -1 for None, and the different ones."""
    different = list(dict.fromkeys(key for key in keys if key is not None))
    numbers = {key: number for number, key in enumerate(different)} | {None: -1}
    return np.array([numbers[key] for key in keys], np.int64), different

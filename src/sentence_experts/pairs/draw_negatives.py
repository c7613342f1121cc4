"""Negatives of validation and test, drawn as `PairsConfig.negatives` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.graph import LinkGraph
from sentence_experts.pairs.hard import near_first
from sentence_experts.pairs.matched import Allowed, find_among, keys_between, keys_of, pair_anew
from sentence_experts.pairs.negatives import Linked, NegativeSampler, Request
from sentence_experts.pairs.same_article import draw_same_article
from sentence_experts.pairs.splits import (
    SPLITS,
    TEST,
    VALIDATION,
    Assignment,
    PairArrays,
    TooFewPairsError,
    WorkArrays,
)


@dataclass(frozen=True)
class DrawnNegatives:
    """The negatives of the evaluation sets, and the positives that they belong to.

    Attributes:
        splits: the linked pairs of each split, without those of validation and test that got no negative.
        negatives: set -> its negatives.
        anchored: whether a positive and its negative have the same left end.
        shortfall: domain -> set -> of its negatives, how many are not fully matched: `nearest` have one end
            of a linked pair and a work near in frequency, `random` two unlinked works.
        near: the same for hard negatives: how many are `near` each other by TF-IDF, of `all`.
    """

    splits: list[PairArrays]
    negatives: Mapping[int, PairArrays]
    anchored: bool = False
    shortfall: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    near: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)


def draw_negatives(
    graph: LinkGraph,
    splits: list[PairArrays],
    assignment: Assignment,
    settings: PairsConfig,
    rng: np.random.Generator,
) -> DrawnNegatives:
    """Draw as many negatives as positives, per domain of each evaluation set.

    Raises:
        TooFewPairsError: there are too few.
    """
    if settings.negatives == "same-article":
        return DrawnNegatives(*draw_same_article(graph, splits, assignment, rng), anchored=True)
    least = settings.negatives_min_cited if settings.negatives == "cited" else 0
    return draw_unlinked(graph, splits, assignment, settings.negatives, least, rng)


class LinkedWorks(Protocol):
    """What negatives need to know of works and their links (`LinkGraph` for its parameters)."""

    @property
    def works(self) -> WorkArrays:
        """Their texts and frequencies."""

    def in_domain(self, domain: str) -> np.ndarray:
        """A mask of the works of a domain."""

    def links_among(self, works: np.ndarray) -> Linked:
        """Tells which two works are linked."""

    def texts(self, works: np.ndarray) -> list[str]:
        """The texts of works."""


def draw_unlinked(
    graph: LinkedWorks,
    splits: list[PairArrays],
    assignment: Assignment,
    negatives: str,
    min_cited: int,
    rng: np.random.Generator,
) -> DrawnNegatives:
    """Draw as many unlinked pairs as positives, per domain of each evaluation set.

    Raises:
        TooFewPairsError: there are too few.
    """
    requests = _requests(graph, splits, assignment)
    if not requests:
        return DrawnNegatives(splits, _by_split([], []))
    linked = graph.links_among(np.unique(np.concatenate([request.pool for request in requests])))
    sampler = NegativeSampler(graph.works, linked, rng)
    if negatives in ("matched", "hard"):
        return _draw_matched(graph, splits, requests, sampler, linked, rng, negatives == "hard")
    return DrawnNegatives(splits, _by_split(requests, sampler.draw(requests, min_cited)))


def _requests(graph: LinkedWorks, splits: list[PairArrays], assignment: Assignment) -> list[Request]:
    requests = []
    for split in (VALIDATION, TEST):
        for domain in np.unique(splits[split].domain):
            pool = np.flatnonzero(graph.in_domain(domain) & assignment.pools[split])
            needed = int((splits[split].domain == domain).sum())
            requests.append(Request(SPLITS[split], domain, needed, pool, assignment.one_end.get(split)))
    return requests


def _by_split(requests: list[Request], negatives_of: list[np.ndarray]) -> dict[int, PairArrays]:
    negatives = {}
    for split in (VALIDATION, TEST):
        mine = [number for number, request in enumerate(requests) if request.split == SPLITS[split]]
        ends = np.concatenate([np.empty((0, 2), np.int64), *(negatives_of[number] for number in mine)])
        domains = np.array(
            [requests[number].domain for number in mine for _ in negatives_of[number]], dtype=object
        )
        negatives[split] = PairArrays(ends[:, 0], ends[:, 1], np.zeros(len(ends), dtype=np.int64), domains)
    return negatives


def _draw_matched(
    graph: LinkedWorks,
    splits: list[PairArrays],
    requests: list[Request],
    sampler: NegativeSampler,
    linked: Linked,
    rng: np.random.Generator,
    hard: bool,
) -> DrawnNegatives:
    splits, negatives_of_requests = list(splits), []
    shortfall: dict[str, dict[str, dict[str, int]]] = {}
    near: dict[str, dict[str, dict[str, int]]] = {}
    same_text = graph.works.same_text
    used = np.empty(0, dtype=np.int64)  # keys of the negatives of other sets, sorted
    for request in requests:
        split = SPLITS.index(request.split)
        positives = np.flatnonzero(splits[split].domain == request.domain)
        ends = np.stack([splits[split].left, splits[split].right], axis=1)[positives]
        allowed = _allowed(request, same_text, linked, used)
        start, near_keys = None, used[:0]
        if hard:
            start, near_keys = near_first(ends, graph.texts(np.unique(ends)), allowed, rng)
        matched = pair_anew(ends, allowed, rng, start)
        others = sampler.more(request, matched.ends, used)
        negatives = np.concatenate([matched.ends, others])
        if len(negatives) == 0:
            raise TooFewPairsError(
                f"{request.domain} ({request.split}): all works of the linked pairs are linked with each "
                "other, so no negatives can be made"
            )
        missing = len(positives) - len(negatives)
        left_out = rng.permutation(positives)[:missing]
        splits[split] = splits[split].take(np.delete(np.arange(len(splits[split])), left_out))
        keys = keys_of(negatives)
        if hard:
            counts = {"near": int(np.isin(keys, near_keys).sum()), "all": len(keys)}
            near.setdefault(request.domain, {})[request.split] = counts
        used = np.sort(np.concatenate([used, keys]))
        negatives_of_requests.append(negatives)
        if matched.nearest or len(others) or missing:
            counts = {"nearest": matched.nearest, "random": len(others), "left_out": missing}
            shortfall.setdefault(request.domain, {})[request.split] = {
                "matched": len(negatives) - matched.nearest - len(others)
            } | counts
    return DrawnNegatives(splits, _by_split(requests, negatives_of_requests), shortfall=shortfall, near=near)


def _allowed(request: Request, same_text: np.ndarray, linked: Linked, used: np.ndarray) -> Allowed:
    def allowed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        mask: np.ndarray = (same_text[left] != same_text[right]) & ~linked(left, right)
        if request.one_end is not None:
            mask &= request.one_end[left] | request.one_end[right]
        mask &= ~find_among(keys_between(left, right), used)
        return mask

    return allowed

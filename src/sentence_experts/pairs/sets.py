"""Train, validation and test of linked pairs: split, sampled, with negatives; or the settings that work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sentence_experts.pairs.config import (
    AUTO_LEVEL,
    DEFAULT_FRACTIONS,
    ENOUGH_TO_TRAIN,
    LEVELS,
    Level,
    PairsConfig,
)
from sentence_experts.pairs.graph import LinkGraph
from sentence_experts.pairs.negatives import DrawnNegatives, draw_negatives
from sentence_experts.pairs.splits import (
    CROSSING,
    SPLIT_METHODS,
    SPLITS,
    TRAIN,
    PairArrays,
    TooFewPairsError,
    split_by_article,
)

# Other settings are tried out on no more pairs than this.
MAX_TRIED = 100_000


@dataclass(frozen=True)
class Sets:
    """The three sets.

    Attributes:
        before: the number of pairs of each set before sampling.
        crossing: the number of pairs that are left out, being between two sets.
        sampled: the linked pairs of each set.
        negatives: those of the evaluation sets, with the pairs that have one.
        trained_within: how near training pairs are, as `nearest_enough` counts them.
    """

    before: list[int]
    crossing: int
    sampled: list[PairArrays]
    negatives: DrawnNegatives
    trained_within: dict[str, dict[str, Any]]


def make_sets(graph: LinkGraph, settings: PairsConfig, rng: np.random.Generator) -> Sets:
    """Split the linked pairs, sample them and draw negatives.

    Raises:
        TooFewPairsError: a set gets no pairs or no negatives; names the settings that would work.
    """
    try:
        return _made(graph, settings, rng)
    except TooFewPairsError as error:
        raise TooFewPairsError(f"{error}. {_describe_feasible(graph, settings)}") from error


def _made(graph: LinkGraph, settings: PairsConfig, rng: np.random.Generator) -> Sets:
    pairs = graph.pairs
    if settings.split == "article":
        citing = graph.citing_articles(pairs)
        assignment = split_by_article(pairs, graph.works, citing, settings.shares, rng)
    else:
        assignment = SPLIT_METHODS[settings.split](pairs, graph.works, settings.shares, rng)
    splits = [pairs.take(assignment.pairs == split) for split in range(len(SPLITS))]
    before = [len(split) for split in splits]
    enough = min(ENOUGH_TO_TRAIN, settings.max_train_per_domain or ENOUGH_TO_TRAIN)
    near, trained_within = nearest_enough(
        splits[TRAIN], settings.trained_levels, enough if settings.train_within == AUTO_LEVEL else 1
    )
    by_count = settings.frequency in ("sampling", "proximity")
    for number, name in enumerate(SPLITS):
        maximum, among = settings.max_per_domain(name), near if number == TRAIN else None
        splits[number] = draw_per_domain(splits[number], maximum, by_count and number == TRAIN, rng, among)
    if empty := [name for name, split in zip(SPLITS, splits, strict=True) if len(split) == 0]:
        raise TooFewPairsError(
            f"the {empty[0]} split got none of the {len(pairs):,} pairs with `split={settings.split}`"
        )
    drawn = draw_negatives(graph, splits, assignment, settings.negatives, settings.negatives_min_cited, rng)
    return Sets(before, int((assignment.pairs == CROSSING).sum()), splits, drawn, trained_within)


def nearest_enough(
    pairs: PairArrays, levels: Sequence[Level], enough: int
) -> tuple[np.ndarray, dict[str, dict[str, Any]]]:
    """The pairs of each domain at the first of `levels` that has enough of them, else all: a mask.

    Returns:
        The mask, and domain -> the level ("" for all), the number of its pairs, and `of` how many.
    """
    chosen, counts = np.ones(len(pairs), dtype=bool), {}
    closest = np.zeros(len(pairs), dtype=np.int64) if pairs.level is None else pairs.level
    for domain in np.unique(pairs.domain):
        rows = pairs.domain == domain
        counts[str(domain)] = {"level": "", "pairs": int(rows.sum()), "of": int(rows.sum())}
        for level in levels:
            near = rows & (closest >= LEVELS.index(level))
            if near.sum() >= enough:
                chosen &= near | ~rows
                counts[str(domain)] |= {"level": level, "pairs": int(near.sum())}
                break
    return chosen, counts


def draw_per_domain(
    pairs: PairArrays,
    maximum: int | None,
    by_count: bool,
    rng: np.random.Generator,
    among: np.ndarray | None = None,
) -> PairArrays:
    """Sample at most `maximum` pairs per domain without replacement, in the order of `pairs`.

    `among` is a mask of the pairs that may be sampled; the state of `rng` afterwards does not depend on it.

    With `by_count`, a pair's probability is proportional to its count, or its weight if it has one: the
    preferential sampling of Hallee et al. 2025 (Data compilation). The largest of the keys u^(1/count), u
    uniform, are such a sample (Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir).
    """
    among = np.ones(len(pairs), dtype=bool) if among is None else among
    if maximum is None:
        return pairs.take(among)
    counted = pairs.count if pairs.weight is None else pairs.weight
    weight = counted if by_count else np.ones(len(pairs))
    keys = np.log(1.0 - rng.random(len(pairs))) / weight
    sampled = []
    for domain in np.unique(pairs.domain):
        rows = np.flatnonzero((pairs.domain == domain) & among)
        sampled.append(rows[np.argsort(-keys[rows], kind="stable")[:maximum]])
    return pairs.take(np.sort(np.concatenate(sampled))) if sampled else pairs


def _describe_feasible(graph: LinkGraph, settings: PairsConfig) -> str:
    """The other settings of the split and the negatives that give all sets, with the sizes of these."""
    if len(graph.pairs) > MAX_TRIED:
        return "Try another `split`, other `fractions` or `negatives=matched`, or add articles"
    works = []
    for changes in _alternatives(settings):
        try:
            sets = _made(graph, settings.model_copy(update=changes), np.random.default_rng(settings.seed))
        except TooFewPairsError:
            continue
        sizes = ", ".join(f"{len(split):,}" for split in sets.negatives.splits)
        named = " ".join(f"`{name}={_written(value)}`" for name, value in changes.items())
        works.append(f"{named} ({sizes} pairs)")
    if not works:
        return "No other split or negatives would work: add articles, or use fewer domains"
    return f"These would work: {', or '.join(works)}"


def _alternatives(settings: PairsConfig) -> Iterator[dict[str, object]]:
    """Other negatives, other splits with their usual fractions, and splits with larger sets."""
    if settings.negatives == "cited":
        yield {"negatives": "matched"}
    even = list(DEFAULT_FRACTIONS["paper"])
    for split, usual in DEFAULT_FRACTIONS.items():
        if split == "article" and settings.relation != "co-citation":
            continue
        if split != settings.split:
            yield {"split": split}
        if list(settings.fractions or usual) != even:
            yield {"split": split, "fractions": even}


def _written(value: object) -> str:
    return ",".join(f"{each:g}" for each in value) if isinstance(value, list) else str(value)

"""One query's results under several routes, compared: what only one found, words in common, a common map."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sentence_experts.retrieval.keywords import COMMON, stem

MAX_TERMS = 12
MIN_LETTERS, MAX_LETTERS = 3, 80
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")


def found_by_one(rankings: Sequence[Sequence[int]]) -> set[int]:
    """The papers that stand in one of several rankings only; none if there is but one ranking."""
    if len(rankings) < 2:
        return set()
    counts = Counter(row for ranking in rankings for row in set(ranking))
    return {row for row, count in counts.items() if count == 1}


def _stems(text: str) -> Iterable[tuple[str, str]]:
    for match in _WORD.finditer(text):
        word = match[0]
        if MIN_LETTERS <= len(word) <= MAX_LETTERS and word.lower() not in COMMON:
            yield stem(word), word


def stems(text: str) -> frozenset[str]:
    """The stems of a text's words, but for those that stand in any text."""
    return frozenset(word for word, _ in _stems(text))


def common_terms(wanted: frozenset[str], text: str) -> list[str]:
    """Words of a text with one of these stems, as the text writes them; most frequent first.

    >>> query = stems("memory replays in sleep")
    >>> common_terms(query, "Replay of memories. The memories of rats are replayed.")
    ['Replay', 'replayed', 'memories']
    """
    counts: Counter[str] = Counter()
    forms: dict[str, dict[str, None]] = {}
    for word, form in _stems(text):
        if word in wanted:
            counts[word] += 1
            known = {each.lower() for each in forms.setdefault(word, {})}
            if form.lower() not in known:
                forms[word][form] = None
    return [form for word, _ in counts.most_common() for form in forms[word]][:MAX_TERMS]


def plane(
    vectors: NDArray[np.float32], query: NDArray[np.float32], like: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Places of papers in a plane, their first two principal components; and of a query among them.

    Args:
        vectors: (papers, dimensions).
        query: (dimensions,); it has no say in the axes, or its distance from all papers would be one of them.
        like: places of the same papers under another route; the plane is turned and mirrored to look as much
            like them as it can, so that papers that keep their neighbours stay where they are.

    Returns:
        (papers + 1, 2), the query's place last, all between -1 and 1.
    """
    if not len(vectors):
        return np.zeros((1, 2))
    mean = vectors.mean(axis=0, dtype=np.float64)
    _, _, axes = np.linalg.svd(vectors - mean, full_matrices=False)
    places = np.zeros((len(vectors) + 1, 2))
    count = min(2, len(axes))
    places[:, :count] = (np.vstack([vectors, query]) - mean) @ axes[:count].T
    if like is not None:
        first, _, second = np.linalg.svd(places[:-1].T @ like[: len(vectors)])
        places = places @ first @ second
    # Both axes alike, or distances would mean less up than sideways.
    places /= max(float(np.abs(places[:-1]).max(initial=0.0)), 1e-12)
    return np.clip(places, -1, 1)

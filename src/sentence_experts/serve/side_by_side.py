"""One query's results under several routes, compared: what only one found, words in common, a common map."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sentence_experts.retrieval.keywords import common_words, stems_of

MAX_TERMS = 12
MIN_LETTERS, MAX_LETTERS = 3, 80
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")


def _words(text: str) -> list[str]:
    """Return the words of a text, but for those that stand in any text."""
    words = (match[0] for match in _WORD.finditer(text))
    return [
        word
        for word in words
        if MIN_LETTERS <= len(word) <= MAX_LETTERS and word.lower() not in common_words()
    ]


def stems(text: str) -> frozenset[str]:
    """Return the stems of a text's words, but for those that stand in any text."""
    return frozenset(stems_of([word.lower() for word in _words(text)]))


def common_terms(wanted: frozenset[str], text: str) -> list[str]:
    """Words of a text with one of these stems, as the text writes them; most frequent first.

    >>> query = stems("memory replays in sleep")
    >>> common_terms(query, "Replay of memories. The memories of rats are replayed.")
    ['Replay', 'replayed', 'memories']
    """
    counts: Counter[str] = Counter()
    forms: dict[str, dict[str, str]] = {}
    words = _words(text)
    for stem, word in zip(stems_of([word.lower() for word in words]), words, strict=True):
        if stem in wanted:
            counts[stem] += 1
            forms.setdefault(stem, {}).setdefault(word.lower(), word)
    return [form for stem, _ in counts.most_common() for form in forms[stem].values()][:MAX_TERMS]


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


def planes(
    routes: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]],
) -> list[list[list[float]]]:
    """Return the `plane` of each route's (vectors, query), each as much like the first one as it can be."""
    maps: list[NDArray[np.float64]] = []
    for vectors, query in routes:
        maps.append(plane(vectors, query, maps[0] if maps else None))
    return [np.round(each, 4).tolist() for each in maps]

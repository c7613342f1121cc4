"""Nearly equal texts are found, and their similarity is that of the definition."""

from __future__ import annotations

import random

import pytest
from sklearn.feature_extraction.text import CountVectorizer

from sentence_experts.evaluation.near_duplicates import near_duplicates

WORDS = [
    f"{head}{tail}"
    for head in ("neuro", "plasto", "cardio", "myco")
    for tail in ("logy", "genesis", "graphy")
]


def text(generator: random.Random, words: int = 12) -> str:
    return " ".join(generator.choice(WORDS) + str(generator.randrange(50)) for _ in range(words))


def edited(generator: random.Random, original: str, edits: int) -> str:
    words = original.split()
    for place in generator.sample(range(len(words)), edits):
        words[place] = generator.choice(WORDS)
    return " ".join(words)


def by_definition(texts: list[str], others: list[str], threshold: float) -> dict[tuple[int, int], float]:
    pieces = CountVectorizer(analyzer="char_wb", ngram_range=(5, 5)).build_analyzer()
    sets, other_sets = ([set(pieces(each)) for each in some] for some in (texts, others))
    found = {}
    for row, one in enumerate(sets):
        for other_row, other in enumerate(other_sets):
            similarity = len(one & other) / len(one | other) if one | other else 0.0
            if similarity >= threshold:
                found[row, other_row] = similarity
    return found


@pytest.mark.parametrize("threshold", [0.7, 0.9])
def test_near_duplicates_equal_the_definition(threshold: float) -> None:
    generator = random.Random(0)
    texts = [text(generator) for _ in range(60)]
    others = [edited(generator, each, number % 7) for number, each in enumerate(texts)]
    left, right, similarity = near_duplicates(texts, others, threshold)
    found = dict(zip(zip(left.tolist(), right.tolist(), strict=True), similarity.tolist(), strict=True))
    expected = by_definition(texts, others, threshold)
    assert found == pytest.approx(expected)
    assert 10 < len(expected) < 60


def test_texts_without_pieces_have_no_duplicates() -> None:
    left, right, _ = near_duplicates(["", " ", "a whole title"], ["", "a whole title"], 0.7)
    assert (left.tolist(), right.tolist()) == ([2], [1])
    assert len(near_duplicates([], ["a whole title"], 0.7)[0]) == 0

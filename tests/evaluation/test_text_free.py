"""Scores that separate linked from unlinked pairs without comparing texts, and their warning."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pytest

from sentence_experts.evaluation.audit import audit
from sentence_experts.evaluation.evaluate import evaluate
from sentence_experts.evaluation.pair_evaluation import measure_text_free
from sentence_experts.evaluation.text_free import EACH_TEXT, FREQUENCY, TIMES_CITED, describe_suspicion
from sentence_experts.pairs.compile import compile_pairs

WORDS = np.array([f"word{n:02d}" for n in range(60)])
Corpus = tuple[list[dict], list[dict]]


def table(labels: list[int], texts: list[tuple[str, ...]], domain: str = "a") -> pa.Table:
    ends = {end: [pair[place] for pair in texts] for place, end in enumerate(("anchor", "positive"))}
    ids = {f"{end}_id": each for end, each in ends.items()}
    return pa.table({**ends, "label": labels, "domain": [domain] * len(labels), **ids})


def roc_auc(found: tuple, label: str) -> float:
    return {each.label: each.pooled.metrics["roc_auc"] for each in found}[label]


def random_text(rng: np.random.Generator, words: np.ndarray = WORDS) -> str:
    return " ".join(rng.choice(words, 8))


def test_a_class_that_each_text_tells_is_seen() -> None:
    rng = np.random.default_rng(0)
    labels = [n % 2 for n in range(200)]
    halves = WORDS[:40], WORDS[20:]
    texts = [(random_text(rng, halves[label]), random_text(rng, halves[label])) for label in labels]
    assert roc_auc(measure_text_free(table(labels, texts), None, 0), EACH_TEXT) > 0.9


def test_a_text_is_not_known_from_the_text_beside_it() -> None:
    """As in paraphrases, the two texts are nearly the same; the class is a coin's."""
    rng = np.random.default_rng(0)
    texts = [(text, f"{text} indeed") for text in (random_text(rng) for _ in range(400))]
    labels = rng.permutation([0, 1] * 200).tolist()
    assert abs(roc_auc(measure_text_free(table(labels, texts), None, 0), EACH_TEXT) - 0.5) < 0.08


def test_a_text_is_not_known_from_its_other_pairs() -> None:
    # Every text is of one class alone, and says nothing about that of others.
    rng = np.random.default_rng(1)
    works = [[random_text(rng) for _ in range(60)] for _ in range(2)]
    labels = [n % 2 for n in range(1200)]
    texts = [tuple(rng.choice(works[label], 2).tolist()) for label in labels]
    # As two cited strings of a work may be: other case, other punctuation.
    texts = [(one.upper(), f"{other}.") if n % 3 else (one, other) for n, (one, other) in enumerate(texts)]
    assert abs(roc_auc(measure_text_free(table(labels, texts), None, 0), EACH_TEXT) - 0.5) < 0.2


def test_texts_that_occur_once_do_not_tell_their_class_in_reverse() -> None:
    # The more linked texts a part has, the fewer those have from which it is told.
    rng = np.random.default_rng(2)
    words = np.array([f"word{n}" for n in range(2000)])
    labels = [n % 2 for n in range(40)]
    values = []
    for _ in range(15):
        pairs = table(labels, [(random_text(rng, words), random_text(rng, words)) for _ in labels])
        values.append(roc_auc(measure_text_free(pairs, None, 0), EACH_TEXT))
    assert 0.43 < np.mean(values) < 0.57


def test_texts_without_words_and_pairs_of_one_class_are_no_error() -> None:
    odd = table([0, 1, 0, 1], [("?", "!"), (".", ","), ("?", ","), ("!", ".")])
    assert roc_auc(measure_text_free(odd, None, 0), EACH_TEXT) == 0.5
    assert measure_text_free(table([1, 1], [("a cat", "b"), ("a", "b dog")]), None) == ()


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """40 reviews of 8 separate works and 2 of 20 well-known ones."""
    rng = np.random.default_rng(0)
    works = [{"paper_id": f"w{n:03d}", "title": random_text(rng), "year": 2000 + n % 9} for n in range(340)]
    lists = [[*range(20 + 8 * n, 28 + 8 * n), *rng.choice(20, 2, replace=False).tolist()] for n in range(40)]
    return works, [{"citing": f"r{n}", "cited": f"w{to:03d}"} for n, each in enumerate(lists) for to in each]


SETTINGS = {"unit": "title", "split": "random", "fractions": (0.4, 0.2, 0.4)}


def test_a_warning_about_negatives_of_well_cited_works(
    corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    # Nearly all of the published kind are of the well-known works.
    cited = compile_pairs(corpus, SETTINGS, negatives="cited", negatives_min_cited=2, max_eval_per_domain=50)
    matched = compile_pairs(corpus, SETTINGS)
    caplog.set_level(logging.WARNING)
    caplog.clear()
    unfair, fair = (evaluate((), each, baseline="tfidf", bootstrap=100) for each in (cited, matched))
    assert roc_auc(unfair.text_free, TIMES_CITED) < 0.1
    assert abs(roc_auc(fair.text_free, TIMES_CITED) - 0.5) < 0.05
    assert abs(roc_auc(fair.text_free, FREQUENCY) - 0.5) < 0.05
    messages = [record.getMessage() for record in caplog.records]
    (warning,) = [message for message in messages if "without comparing texts" in message]
    assert "times cited (" in warning
    assert "reversed" in warning
    assert describe_suspicion(fair.text_free) is None
    assert describe_suspicion(audit((), cited, bootstrap=100).text_free) is not None
    assert unfair.text_free[0].pooled.f1_of_all_linked == pytest.approx(2 / 3)
    assert unfair.to_json()["text_free"][0]["label"] == TIMES_CITED

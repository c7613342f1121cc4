"""What tells linked from unlinked pairs without comparing texts: the baseline of every metric.

A model is only as good as its lead over these. If one of them is far from a ROC-AUC of 0.5, the two classes
differ in something else than in whether their works belong together, often through how negatives are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentence_experts.evaluation.pairs import PairScorer, domains_of, rows_of
from sentence_experts.pairs.splits import fold_texts
from sentence_experts.progress import announced

Floats = NDArray[np.float64]

EACH_TEXT = "each text alone"
FREQUENCY = "frequency in these pairs"
TIMES_CITED = "times cited"
# Those that only tell how the pairs were made: a warning if one does.
OF_THE_MAKING = (TIMES_CITED, FREQUENCY, EACH_TEXT)
FOLDS = 5
TFIDF_FEATURES = 4096
# Above a ROC-AUC of this, or below 1 minus it, with its whole interval.
SUSPICIOUS = 0.55


class ValueScorer:
    """Scores a pair by a value of each of its texts; pairs with an unknown value get the median score."""

    def __init__(
        self, label: str, values: Mapping[str, float], together: Callable[[Floats, Floats], Floats]
    ) -> None:
        """Take the value of each text: a text without one, or with NaN, is unknown."""
        self.label = label
        self._values = values
        self._together = together

    def settings(self) -> dict[str, Any]:
        """Only its name."""
        return {"model": self.label}

    def score(self, anchors: Sequence[str], positives: Sequence[str], domain: str) -> Floats:
        """The score of each pair, shape (pairs,)."""
        ends = (np.array([self._values.get(text, np.nan) for text in side]) for side in (anchors, positives))
        scores = self._together(*ends).astype(np.float64)
        known = ~np.isnan(scores)
        return np.where(known, scores, np.median(scores[known]) if known.any() else 0.0)


class EachTextScorer:
    """The sum of what each text of a pair tells about its class: the two are never compared.

    The share of linked pairs among those of a text is learned from other texts, by logistic regression on
    TF-IDF in each domain: five parts, with all copies of a text (case and punctuation aside) in the same one.
    """

    label = EACH_TEXT

    def __init__(self, table: pa.Table) -> None:
        """Learn from the pairs of a checked table, which are those to be scored."""
        self._values = {
            domain: _value_of_texts(table.take(pa.array(rows_of(table, domain))))
            for domain in domains_of(table)
        }

    def settings(self) -> dict[str, Any]:
        """What it was made with."""
        return {"model": self.label, "folds": FOLDS, "max_features": TFIDF_FEATURES}

    def score(self, anchors: Sequence[str], positives: Sequence[str], domain: str) -> Floats:
        """The sum of the log-odds of each pair's texts, shape (pairs,)."""
        values = self._values[domain]
        return np.array([values[one] + values[two] for one, two in zip(anchors, positives, strict=True)])


def _value_of_texts(table: pa.Table) -> dict[str, float]:
    """Text -> log-odds of a linked pair, learned from the other parts."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    ends = _both_ends(table, "{}")
    labels = np.tile(table["label"].to_numpy(), 2)
    folded = np.array(fold_texts(ends).to_pylist(), dtype=object)
    texts, place = np.unique(folded, return_inverse=True)
    times = np.stack([np.bincount(place[labels == label], minlength=len(texts)) for label in (0, 1)])
    part = np.random.default_rng(0).permutation(len(texts)) % FOLDS
    values = np.zeros(len(texts))
    try:
        words = TfidfVectorizer(max_features=TFIDF_FEATURES).fit_transform(texts)
    except ValueError:  # no text has a word
        words = None
    for fold in range(FOLDS if words is not None else 0):
        # A text is a row of each class, weighted by how often it is in pairs of that class.
        rows = np.tile(np.flatnonzero(part != fold), 2)
        classes = np.repeat([0, 1], len(rows) // 2)
        weights = times[classes, rows].astype(np.float64)
        seen = weights > 0
        if len(set(classes[seen].tolist())) < 2 or not (part == fold).any():
            continue
        model = LogisticRegression(max_iter=1000)
        model.fit(words[rows[seen]], classes[seen], weights[seen] / weights[seen].mean())
        values[part == fold] = model.decision_function(words[part == fold])
        # The more linked texts a part has, the fewer the others have: without this a part's level would tell
        # the classes in reverse.
        values[part == fold] -= values[part == fold].mean()
    return dict(zip(ends.to_pylist(), values[place].tolist(), strict=True))


@announced("scoring pairs without comparing texts")
def text_free_scorers(table: pa.Table, works: pa.Table | None) -> list[PairScorer]:
    """What scores the pairs of a checked table without comparing texts.

    Args:
        table: the pairs.
        works: what is known of their works (`Pairs.works`); without, only what the pairs themselves tell.
    """
    ids, texts = (_both_ends(table, column).to_pylist() for column in ("{}_id", "{}"))
    work_of = dict(zip(texts, ids, strict=True))
    scorers: list[PairScorer] = []
    if works is not None:
        journals = works["journal"].unique().to_pylist()
        numbers = {name: None if name is None else number for number, name in enumerate(journals)}
        columns = {name: works[name].to_pylist() for name in ("times_cited", "references", "year")}
        columns["journal"] = [numbers[name] for name in works["journal"].to_pylist()]
        known = {}
        for name, column in columns.items():
            of_work = dict(zip(works["paper_id"].to_pylist(), column, strict=True))
            known[name] = {text: _number(of_work.get(work)) for text, work in work_of.items()}
        scorers += [
            ValueScorer(TIMES_CITED, known["times_cited"], _sum_of_logs),
            ValueScorer("number of references", known["references"], _sum_of_logs),
            ValueScorer("years apart", known["year"], lambda one, two: -np.abs(one - two)),
            ValueScorer("same journal", known["journal"], _equal),
        ]
    count = np.unique(np.array(ids, dtype=object), return_inverse=True, return_counts=True)
    frequency = dict(zip(texts, count[2][count[1]].tolist(), strict=True))
    lengths = {text: float(max(len(text), 1)) for text in work_of}
    return [
        *scorers,
        ValueScorer(FREQUENCY, frequency, _sum_of_logs),
        ValueScorer("difference in length", lengths, lambda one, two: -np.abs(np.log(one / two))),
        EachTextScorer(table),
    ]


def _both_ends(table: pa.Table, column: str) -> pa.Array:
    """A column of both ends, one after the other: shape (2 * pairs,)."""
    sides = (table[column.format(end)] for end in ("anchor", "positive"))
    return pa.chunked_array([chunk for side in sides for chunk in side.chunks], pa.string()).combine_chunks()


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _sum_of_logs(one: Floats, two: Floats) -> Floats:
    total: Floats = np.log1p(one) + np.log1p(two)
    return total


def _equal(one: Floats, two: Floats) -> Floats:
    return np.where(np.isnan(one) | np.isnan(two), np.nan, one == two)

"""Scores that separate linked from unlinked pairs without comparing texts: the baseline of every metric.

A model is only as good as its lead over these. If one of them is far from a ROC-AUC of 0.5, the two classes
differ in something else than in whether their works belong together, often through how negatives are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentence_experts.evaluation.scorers import TFIDF_FEATURES, domains_of, rows_of
from sentence_experts.pairs.splits import find_components, fold_texts
from sentence_experts.progress import announce

if TYPE_CHECKING:
    from sentence_experts.evaluation.results import ModelResult

Floats = NDArray[np.float64]

EACH_TEXT = "each text alone"
FREQUENCY = "frequency in these pairs"
TIMES_CITED = "times cited"
# Scores that only tell how the pairs were made: a warning if one does.
CONSTRUCTION_SCORES = (TIMES_CITED, FREQUENCY, EACH_TEXT)
FOLDS = 5
# Bound of ROC-AUC: the whole interval lies above it, or below 1 minus it.
SUSPICIOUS = 0.55


@announce("scoring pairs without comparing texts")
def score_without_comparing(table: pa.Table, works: pa.Table | None) -> dict[str, Floats]:
    """Score the pairs of a checked table without comparing texts.

    Args:
        table: the pairs.
        works: known facts on their works (`Pairs.works`); without, only what the pairs themselves tell.

    Returns:
        label -> scores, (pairs,). Pairs with an unknown value get the median of their domain.
    """
    scores: dict[str, Floats] = {}
    ids = np.array(_join_ends(table, "{}_id").to_pylist(), dtype=object)
    if works is not None:
        known = works.to_pandas().drop_duplicates("paper_id", keep="last").set_index("paper_id")
        known["journal"] = known["journal"].astype("category").cat.codes.replace(-1, np.nan)
        numbers = known[["times_cited", "references", "year", "journal"]].astype(float).reindex(ids)
        ends = {name: numbers[name].to_numpy().reshape(2, -1) for name in numbers}
        scores[TIMES_CITED] = np.log1p(ends["times_cited"]).sum(0)
        scores["number of references"] = np.log1p(ends["references"]).sum(0)
        scores["years apart"] = -np.abs(np.subtract(*ends["year"]))
        same = np.subtract(*ends["journal"])
        scores["same journal"] = np.where(np.isnan(same), np.nan, same == 0)
    _, places, counts = np.unique(ids, return_inverse=True, return_counts=True)
    scores[FREQUENCY] = np.log1p(counts[places].astype(np.float64)).reshape(2, -1).sum(0)
    lengths = np.array([max(len(text), 1) for text in _join_ends(table, "{}").to_pylist()], dtype=np.float64)
    scores["difference in length"] = -np.abs(np.subtract(*np.log(lengths).reshape(2, -1)))
    alone = np.empty(table.num_rows)
    for domain in domains_of(table):
        rows = rows_of(table, domain)
        for column in scores.values():
            unknown = np.isnan(part := column[rows])
            part[unknown] = np.median(part[~unknown]) if not unknown.all() else 0.0
            column[rows] = part
        alone[rows] = _score_each_text(table.take(pa.array(rows)))
    return {**scores, EACH_TEXT: alone}


def _score_each_text(table: pa.Table) -> Floats:
    """Return the summed log-odds of the class, (pairs,), from each text alone: the two are never compared.

    The log-odds of a linked pair are learned from other texts, by logistic regression on TF-IDF: five parts,
    with all copies of a text (case and punctuation aside) in the same one, and, where texts are in few pairs
    each, those that are paired with it.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    labels = np.tile(table["label"].to_numpy(), 2)
    folded = np.array(fold_texts(_join_ends(table, "{}")).to_pylist(), dtype=object)
    texts, place = np.unique(folded, return_inverse=True)
    times = np.stack([np.bincount(place[labels == label], minlength=len(texts)) for label in (0, 1)])
    left, right = place.reshape(2, -1)
    groups = find_components(left, right, len(texts))
    if np.bincount(groups).max() * FOLDS > len(texts):  # many texts hang together
        groups = np.arange(len(texts))
    part = np.random.default_rng(0).permutation(groups.max() + 1)[groups] % FOLDS
    values = np.zeros(len(texts))
    try:
        words = TfidfVectorizer(max_features=TFIDF_FEATURES).fit_transform(texts)
    except ValueError:  # no text has a word
        return np.zeros(table.num_rows)
    for fold in range(FOLDS):
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
    sums: Floats = values[place].reshape(2, -1).sum(0)
    return sums


def _join_ends(table: pa.Table, column: str) -> pa.Array:
    """Return a column of both ends, one after the other: shape (2 * pairs,)."""
    sides = (table[column.format(end)] for end in ("anchor", "positive"))
    return pa.chunked_array([chunk for side in sides for chunk in side.chunks], pa.string()).combine_chunks()


def describe_suspicion(text_free: Sequence[ModelResult]) -> str | None:
    """Return a warning about pairs whose class can be told by how they were made, if there is any.

    A ROC-AUC whose interval lies above 0.55 warns. Count-based scores may be reversed: below 0.45 also
    warns. A score learned from the texts is not: below 0.5 it was learned from too few.
    """
    telling = []
    for model in text_free:
        interval = model.pooled.intervals.get("roc_auc")
        if model.label not in CONSTRUCTION_SCORES or interval is None:
            continue
        low, high = sorted((interval.low, interval.high))
        if reverse := high < 0.5 and model.label != EACH_TEXT:
            low, high = 1 - high, 1 - low
        if low > SUSPICIOUS:
            telling.append(f"{model.label} ({low:.3f} to {high:.3f}{', reversed' * reverse})")
    if not telling:
        return None
    return (
        "The classes of these pairs can be told apart without comparing texts: ROC-AUC by "
        f"{', '.join(telling)}. Figures on them say little about texts; compile pairs with "
        "`negatives=matched`."
    )

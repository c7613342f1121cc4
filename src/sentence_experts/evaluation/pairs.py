"""The similarity of each labelled pair, and scores that were computed elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentence_experts.errors import InputError
from sentence_experts.evaluation.metrics import checked_pairs
from sentence_experts.evaluation.statistics import ScoredPairs
from sentence_experts.tables import Table, name_of_table, read_table

PAIR_COLUMNS = ("anchor", "positive", "label", "domain", "anchor_id", "positive_id")
KEPT_COLUMNS = ("domain", "anchor_id", "positive_id", "label")
LINKED_BY = "linked_by"  # optional: the articles that link a pair


class PairScorer(Protocol):
    """A model as the evaluation of pairs sees it."""

    label: str

    def settings(self) -> dict[str, Any]:
        """What identifies the model in the results."""

    def score(self, anchors: Sequence[str], positives: Sequence[str], domain: str) -> NDArray[np.float64]:
        """The similarity of each pair of texts, shape (pairs,)."""


def read_scores(source: Table) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores that were computed elsewhere: the columns `prediction` and `label` of a table, each (rows,).

    Raises:
        InputError: no such file, a column is missing or not of numbers, or bad values
            (`metrics.checked_pairs`).
    """
    table = read_table(source, ("prediction", "label"))
    where = name_of_table(source)
    for name in table.column_names:
        if table[name].null_count:
            raise InputError(f"{where}: row {table[name].to_pylist().index(None) + 1} has no {name}")
    try:
        return checked_pairs(*(table[name].cast(pa.float64()).to_numpy() for name in table.column_names))
    except (InputError, pa.ArrowException) as error:
        raise InputError(f"{where}: {error}") from error


def checked_table(table: pa.Table, where: str = "the pairs") -> pa.Table:
    """The columns of pairs that an evaluation needs, checked.

    Raises:
        InputError: a column is missing, a value is null, a label is not 0 or 1, or there are no pairs.
    """
    missing = [column for column in PAIR_COLUMNS if column not in table.column_names]
    if missing:
        raise InputError(f"{where}: no column {missing[0]!r}; columns are {', '.join(table.column_names)}")
    if table.num_rows == 0:
        raise InputError(f"{where}: no pairs to evaluate")
    table = table.select([*PAIR_COLUMNS, *(name for name in (LINKED_BY,) if name in table.column_names)])
    for column in PAIR_COLUMNS:
        if table[column].null_count:
            row = table[column].to_pylist().index(None)
            raise InputError(f"{where}: row {row} has no {column}")
    if not set(table["label"].unique().to_pylist()) <= {0, 1}:
        raise InputError(f"{where}: labels must be 0 or 1, not {table['label'].unique().to_pylist()[:5]}")
    return table


def domains_of(table: pa.Table) -> list[str]:
    """The domains in the table, sorted."""
    return sorted(table["domain"].unique().to_pylist())


def texts_by_domain(table: pa.Table) -> dict[str, list[str]]:
    """Domain -> its distinct texts, sorted."""
    texts = {}
    for domain in domains_of(table):
        rows = table.filter(pc.equal(table["domain"], domain))
        texts[domain] = sorted({*rows["anchor"].to_pylist(), *rows["positive"].to_pylist()})
    return texts


def score_pairs(scorer: PairScorer, table: pa.Table) -> NDArray[np.float64]:
    """The similarity of each row of a checked table, shape (pairs,)."""
    scores = np.empty(table.num_rows, dtype=np.float64)
    for domain in domains_of(table):
        rows = rows_of(table, domain)
        part = table.take(pa.array(rows))
        scores[rows] = scorer.score(part["anchor"].to_pylist(), part["positive"].to_pylist(), domain)
    return scores


def cosine_by_text(
    anchors: Sequence[str], positives: Sequence[str], encode: Callable[[list[str]], NDArray[np.float32]]
) -> NDArray[np.float64]:
    """Cosine of each pair, every distinct text encoded once.

    Texts are encoded in a fixed order (longest first), so a score depends neither on the order of the pairs
    nor on the side of a text.
    """
    from sentence_experts.encoding.encoder import cosines

    texts = sorted({*anchors, *positives}, key=lambda text: (-len(text), text))
    row = {text: index for index, text in enumerate(texts)}
    vectors = encode(texts)
    return cosines(vectors[[row[text] for text in anchors]], vectors[[row[text] for text in positives]])


def scored_by_domain(
    table: pa.Table, scores: NDArray[np.float64], by_article: bool = False
) -> dict[str, ScoredPairs]:
    """Domain -> its scored pairs, in the order of their ids; `scores` is in that of the table, (pairs,).

    With `by_article` the pairs keep the articles that link them.
    """
    labels = table["label"].to_numpy().astype(np.int64)
    sets = {}
    # So that the order of the pairs does not change the last digit of a sum.
    order = pc.sort_indices(table, [(name, "ascending") for name in ("anchor_id", "positive_id", "label")])
    for domain in domains_of(table):
        rows = order.to_numpy()[np.isin(order.to_numpy(), rows_of(table, domain))]
        columns = ("anchor_id", "positive_id", *((LINKED_BY,) if by_article else ()))
        ids = [table[column].take(pa.array(rows)).to_pylist() for column in columns]
        sets[domain] = ScoredPairs(scores[rows], labels[rows], *ids)
    return sets


def rows_of(table: pa.Table, domain: str) -> NDArray[np.int64]:
    """The numbers of a domain's rows."""
    return np.flatnonzero(pc.equal(table["domain"], domain).to_numpy(zero_copy_only=False))

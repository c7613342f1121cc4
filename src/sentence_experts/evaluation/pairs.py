"""The similarity of each labelled pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sentence_experts.errors import InputError

PAIR_COLUMNS = ("anchor", "positive", "label", "domain", "anchor_id", "positive_id")
LINKED_BY = "linked_by"  # optional: the articles that link a pair

# Anchors, positives and their domain -> the similarity of each pair, shape (pairs,).
Score = Callable[[Sequence[str], Sequence[str], str], NDArray[np.float64]]


@dataclass(frozen=True)
class Scorer:
    """A function that scores pairs; `settings` identify its model, after it has scored."""

    label: str
    score: Score
    settings: Callable[[], dict[str, Any]] = dict


def checked_table(table: pa.Table, where: str = "the pairs") -> pa.Table:
    """Return the columns of pairs that an evaluation needs.

    Raises:
        InputError: a column is missing, a value is null, a label is not 0 or 1, or there are no pairs.
    """
    if missing := [column for column in PAIR_COLUMNS if column not in table.column_names]:
        raise InputError(f"{where}: no column {missing[0]!r}; columns are {', '.join(table.column_names)}")
    if table.num_rows == 0:
        raise InputError(f"{where}: no pairs to evaluate")
    for column in PAIR_COLUMNS:
        if table[column].null_count:
            raise InputError(f"{where}: row {table[column].to_pylist().index(None)} has no {column}")
    if not set(labels := table["label"].unique().to_pylist()) <= {0, 1}:
        raise InputError(f"{where}: labels must be 0 or 1, not {labels[:5]}")
    return table.select([*PAIR_COLUMNS, *({LINKED_BY} & set(table.column_names))])


def domains_of(table: pa.Table) -> list[str]:
    """Return the domains in the table, sorted."""
    return sorted(table["domain"].unique().to_pylist())


def rows_of(table: pa.Table, domain: str) -> NDArray[np.int64]:
    """Return the numbers of a domain's rows."""
    return np.flatnonzero(pc.equal(table["domain"], domain).to_numpy(zero_copy_only=False))


def texts_by_domain(table: pa.Table) -> dict[str, list[str]]:
    """Return domain -> its distinct texts, sorted."""
    texts = {}
    for domain in domains_of(table):
        rows = table.take(pa.array(rows_of(table, domain)))
        texts[domain] = sorted({*rows["anchor"].to_pylist(), *rows["positive"].to_pylist()})
    return texts


def score_pairs(score: Score, table: pa.Table) -> NDArray[np.float64]:
    """Return the similarity of each row of a checked table, shape (pairs,)."""
    scores = np.empty(table.num_rows, dtype=np.float64)
    for domain in domains_of(table):
        rows = rows_of(table, domain)
        part = table.take(pa.array(rows))
        scores[rows] = score(part["anchor"].to_pylist(), part["positive"].to_pylist(), domain)
    return scores

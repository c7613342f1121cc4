"""The number of papers that have each value of a column, as filters compare values."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def folded(value: Any) -> str:
    """Return what filters compare of a value: in lower case, composed (NFC), no white space around it."""
    return unicodedata.normalize("NFC", str(value)).strip().casefold()


def count_papers(column: pa.Array) -> dict[Any, int]:
    """Count the papers with each value; `column` has one value per paper, or a list.

    Values that differ only in their case are one, in the most frequent spelling.
    """
    is_list = pa.types.is_list(column.type)
    values = (column.flatten() if is_list else column).dictionary_encode()
    papers = np.asarray(pc.list_parent_indices(column)) if is_list else np.arange(len(column))
    codes, spellings = np.asarray(pc.fill_null(values.indices, -1)), values.dictionary.to_pylist()
    numbers: dict[str, int] = {}
    of_code = np.array([numbers.setdefault(folded(each), len(numbers)) for each in spellings], np.int64)
    papers, codes = papers[codes >= 0].astype(np.int64), codes[codes >= 0]
    times, counts = (_count(papers, each, len(spellings)) for each in (codes, of_code[codes]))
    most: dict[int, Any] = {}
    for code in sorted(range(len(spellings)), key=lambda code: (-times[code], spellings[code])):
        most.setdefault(int(of_code[code]), spellings[code])
    return {value: int(counts[number]) for number, value in most.items()}


def _count(papers: NDArray[np.int64], codes: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the number of different papers with each code."""
    pairs = np.sort(papers * size + codes)
    counts: NDArray[np.int64] = np.bincount(
        pairs[np.diff(pairs, prepend=-1) > 0] % max(size, 1), minlength=size
    )
    return counts

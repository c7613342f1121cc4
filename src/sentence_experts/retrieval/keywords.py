"""BM25: papers by the words of a query, over posting lists that are built once and mapped into memory.

A table of every word's papers in five arrays is all that BM25 needs, so it stands on scikit-learn's counts
and NumPy instead of a search engine: a query reads the lists of its own words only. Words are runs of letters
and digits in lower case without the endings of plural and tense; words that stand in any paper count only in
queries that have no others.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sentence_experts.errors import InputError
from sentence_experts.progress import announced
from sentence_experts.retrieval.index import FOLDER
from sentence_experts.retrieval.texts import texts_fingerprint, texts_of
from sentence_experts.storage import locked, replacing_folder, sha256_text, write_npy, write_text

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

K1, B = 1.2, 0.75  # Robertson's usual values, as in Lucene
WORD = re.compile(r"\w+")
_MIN_LETTERS = 3  # of a stem
WORDS, STARTS, ROWS, WEIGHTS = "words.txt", "starts.npy", "rows.npy", "weights.npy"
_VERSION = "bm25 2"
# Words that stand in any paper; they say little about what a text is about.
_COMMON_TEXT = (
    "a an as at be by do he if in is it me my no of on or so to up us we "
    "about above across after against all also although among and any are around based because been "
    "before being below between both but can could did does due during each either few for from further "
    "had has have here how however into its itself let like many may might more most much must nor not "
    "now off once one only onto other our out over own per same several shall she should show showed "
    "shown shows since some such than that the their them then there these they this those through thus "
    "too two under until upon use used using very via was well were what when where whether which while "
    "who whose why will with within without would yet you your"
)
COMMON = frozenset(_COMMON_TEXT.split())
FUSED = 200  # papers of each ranking that are fused, however many are wanted


@dataclass(frozen=True)
class KeywordIndex:
    """The posting lists of a corpus.

    Attributes:
        words: word -> its number.
        starts: (words + 1,) where each word's list begins.
        rows: (postings,) rows of papers.
        weights: (postings,) what the word adds to the paper's score.
        papers: the number of papers of the corpus.
    """

    words: dict[str, int]
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    weights: NDArray[np.float32]
    papers: int

    def scores(self, query: str) -> NDArray[np.float32]:
        """The BM25 score of every paper, (papers,); 0 for those without any word of the query."""
        scores = np.zeros(self.papers, np.float32)
        for word in dict.fromkeys(words_of(query, of_query=True)):
            if (number := self.words.get(word)) is not None:
                here = slice(self.starts[number], self.starts[number + 1])
                scores[self.rows[here]] += self.weights[here]  # a paper stands in a list once
        return scores

    def search(self, query: str, top_k: int, allowed: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """The rows of the best papers that hold a word of the query, best first."""
        scores = self.scores(query)
        if allowed is not None:
            scores[~allowed] = 0
        rows = np.flatnonzero(scores)
        if len(rows) > top_k:
            rows = rows[scores[rows] >= np.partition(scores[rows], -top_k)[-top_k]]
        return rows[np.argsort(-scores[rows], kind="stable")][:top_k]


def words_of(text: str, of_query: bool = False) -> list[str]:
    """The stems of a text's words in lower case; of a query without common words, if it has others."""
    words = WORD.findall(text.lower())
    if of_query:
        words = [word for word in words if word not in COMMON] or words
    return [stem(word) for word in words]


@lru_cache(1 << 16)
def stem(word: str) -> str:
    """A word without the endings of plural and tense, roughly.

    >>> stem("Memories"), stem("memory"), stem("replayed"), stem("class")
    ('memory', 'memory', 'replay', 'class')
    """
    word = word.lower().replace("’", "'").removesuffix("'s")
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("s", "")):
        if (
            word.endswith(ending)
            and len(word) - len(ending) >= _MIN_LETTERS
            and not word.endswith(("ss", "us"))
        ):
            return word[: -len(ending)] + instead
    return word


def keyword_index(corpus: CorpusFolder, unit: str) -> KeywordIndex:
    """The posting lists of a corpus's texts: read if they are there, otherwise built beside it.

    Raises:
        InputError: no paper has that text, or they cannot be written beside the corpus.
    """
    key = sha256_text(_VERSION, unit, texts_fingerprint(corpus, unit))[:16]
    folder = corpus.path / FOLDER / f"words-{unit}-{key}"
    if not (folder / WORDS).is_file():
        try:
            with locked(folder, "count the words of the corpus", wait=True):
                if not (folder / WORDS).is_file():
                    _build(corpus, unit, folder)
        except PermissionError as error:
            raise InputError(f"{folder.parent}: cannot be written beside the corpus: {error}") from error
    words = (folder / WORDS).read_text(encoding="utf-8").split("\n")
    starts, rows, weights = (np.load(folder / name, mmap_mode="r") for name in (STARTS, ROWS, WEIGHTS))
    numbers = {word: number for number, word in enumerate(words)}
    return KeywordIndex(numbers, starts, rows, weights, pq.read_metadata(corpus.papers).num_rows)


@announced("collecting the words of the corpus")
def _build(corpus: CorpusFolder, unit: str, folder: Path) -> None:
    from sklearn.feature_extraction.text import CountVectorizer

    rows: list[int] = []

    def texts() -> Iterator[str]:
        for row, text in texts_of(corpus, unit):
            rows.append(row)
            yield text

    vectorizer = CountVectorizer(tokenizer=words_of, token_pattern=None, lowercase=False, dtype=np.int32)
    try:
        counts = vectorizer.fit_transform(texts()).tocsc()  # (texts, words)
    except ValueError as error:  # no text, or no word in any
        raise InputError(f"{corpus.papers}: no words to search for: {error}") from error
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    frequency = np.diff(counts.indptr)
    rarity = np.log1p((len(rows) - frequency + 0.5) / (frequency + 0.5))
    norm = K1 * (1 - B + B * lengths / lengths.mean())
    values = counts.data / (counts.data + norm[counts.indices])
    weights = (values * np.repeat(rarity, frequency)).astype(np.float32)
    with replacing_folder(folder) as temporary:
        write_npy(temporary / STARTS, counts.indptr.astype(np.int64))
        write_npy(temporary / ROWS, np.array(rows, np.int32)[counts.indices])
        write_npy(temporary / WEIGHTS, weights)
        write_text(temporary / WORDS, "\n".join(vectorizer.get_feature_names_out()))
    for older in folder.parent.glob(f"words-{unit}-*"):  # of an older state of the corpus
        if older != folder and (older / WORDS).is_file():
            shutil.rmtree(older, ignore_errors=True)


def fused(rankings: list[NDArray[np.int64]], top_k: int, constant: int = 60) -> NDArray[np.int64]:
    """Reciprocal rank fusion: rows by the sum of 1 / (60 + rank) over the rankings that hold them.

    60 is the constant of Cormack, Clarke and Buettcher (2009). Ties stand in the order of the first ranking.
    """
    sums: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking.tolist(), start=1):
            sums[row] = sums.get(row, 0.0) + 1 / (constant + rank)
    best = sorted(sums, key=lambda row: -sums[row])[:top_k]
    return np.array(best, np.int64)

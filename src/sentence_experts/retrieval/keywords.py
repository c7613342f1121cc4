"""BM25 by bm25s: papers by the words of a query, over an index that is built once and mapped into memory.

Words are runs of letters and digits in lower case, as Snowball's English stems. Words that stand in any text
count only in queries that have no others.
"""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from Stemmer import Stemmer

from sentence_experts.errors import InputError
from sentence_experts.progress import announce
from sentence_experts.retrieval.index import FOLDER, read_index, write_index_record
from sentence_experts.retrieval.texts import texts_fingerprint, texts_of
from sentence_experts.retrieval.vectors import best_of
from sentence_experts.storage import OpenFiles, locked, replacing_folder, sha256_settings, write_npy

if TYPE_CHECKING:
    from sentence_experts.corpus.corpus_folder import CorpusFolder

FUSED = 200  # papers of each ranking that are fused, however many are wanted
ROWS = "rows.npy"
_VERSION = "bm25s 2"
_WHAT = "words of the papers of a corpus"
_WORD = re.compile(r"\w+")
_TAIL = re.compile(r"(?<=\w)['’](?:[stdm]|ll|re|ve)\b", re.IGNORECASE)  # of "it's" and "we've"
# "I" is a pronoun before these.
_LETTER = re.compile(
    r"\b(\w+)[\s-]+\(?"
    r"(?=([AI])\b(?!['’]| +(?:am|have|had|do|did|can|could|will|would|should|may|might|must)\b))"
)
_WHOLE_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_MIN_LETTERS, _MAX_LETTERS = 3, 80


@dataclass(frozen=True)
class KeywordIndex:
    """The words of a corpus.

    Attributes:
        bm25: the index of bm25s.
        rows: row of each text's paper, (texts,).
        files: the files behind both.
    """

    bm25: Any
    rows: NDArray[np.int64]
    files: OpenFiles

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return the BM25 score of every text, (texts,); 0 for those without any word of the query."""
        words = words_of_query(unicodedata.normalize("NFC", query))  # as the corpus has its texts
        if not words:
            return np.zeros(len(self.rows), np.float32)
        scores: NDArray[np.float32] = self.bm25.get_scores(list(dict.fromkeys(stems_of(words))))
        return scores

    def search(self, query: str, top_k: int, allowed: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Return the rows of the best papers that hold a word of the query, best first."""
        scores = self.scores(query)
        found = scores > 0 if allowed is None else (scores > 0) & allowed[self.rows]
        return self.rows[best_of(np.where(found, scores, -np.inf), top_k)]


@cache
def common_words() -> frozenset[str]:
    """Return words in lower case that say little about what a text is about."""
    from bm25s.stopwords import STOPWORDS_EN_PLUS

    # Its other letters are the ends of "it's" and "I'd", and would be those of "vitamin D" and "T cells".
    return frozenset(word for word in STOPWORDS_EN_PLUS if len(word) > 1 or word in ("a", "i"))


def words_of_query(query: str) -> list[str]:
    """Return the words of a query that count, in lower case: common ones only if there are no others.

    "A" and "I" directly behind another word are names, as in "vitamin A" and "type I collagen".

    >>> words_of_query("How do I measure vitamin A, and what doesn't it do?")
    ['measure', 'vitamin', 'a']
    """
    text = _TAIL.sub("", query)
    words = [match[0].lower() for match in _WORD.finditer(text)]
    names = {match.start(2) for match in _LETTER.finditer(text) if match[1].lower() not in common_words()}
    counted = [
        match[0].lower()
        for match in _WORD.finditer(text)
        if match.start() in names or match[0].lower() not in common_words()
    ]
    return counted or words


def telling_words(text: str) -> list[str]:
    """Return the words of a text as it writes them, but for those that stand in any text."""
    words = (match[0] for match in _WHOLE_WORD.finditer(unicodedata.normalize("NFC", text)))
    return [
        word
        for word in words
        if _MIN_LETTERS <= len(word) <= _MAX_LETTERS and word.lower() not in common_words()
    ]


def stems_of(words: list[str]) -> list[str]:
    """Return the stems of words in lower case.

    >>> stems_of(["memories", "memory", "replayed", "class"])
    ['memori', 'memori', 'replay', 'class']
    """
    stems: list[str] = Stemmer("english").stemWords(words)
    return stems


def keyword_index(corpus: CorpusFolder, unit: str) -> KeywordIndex:
    """Read the words of a corpus's texts, or collect them and store them beside the corpus."""
    from bm25s import BM25

    settings = {"version": _VERSION, "unit": unit, "texts": texts_fingerprint(corpus, unit)}
    folder = corpus.path / FOLDER / f"words-{unit}-{sha256_settings(settings)[:16]}"
    if read_index(folder, _WHAT) is None:
        try:
            with locked(folder, "collect the words of the corpus", wait=True):
                if read_index(folder, _WHAT) is None:
                    _build(corpus, settings, folder)
        except PermissionError as error:
            raise InputError(f"{folder.parent}: cannot be written beside the corpus: {error}") from error
    rows = np.load(folder / ROWS, mmap_mode="r")
    return KeywordIndex(BM25.load(folder, mmap=True), rows, OpenFiles(folder.glob("*.npy")))


@announce("collecting the words of the corpus")
def _build(corpus: CorpusFolder, settings: dict[str, str], folder: Path) -> None:
    from bm25s import BM25

    unit = settings["unit"]
    rows: list[int] = []
    texts: list[list[int]] = []
    numbers: dict[str, int] = {}
    for row, text in texts_of(corpus, unit):
        rows.append(row)
        words = stems_of(_WORD.findall(_TAIL.sub("", text.lower())))
        texts.append([numbers.setdefault(word, len(numbers)) for word in words])
    if not numbers:
        raise InputError(f"{corpus.papers}: no words to search for")
    bm25 = BM25()
    bm25.index((texts, numbers), show_progress=False)
    with replacing_folder(folder) as temporary:
        bm25.save(temporary, show_progress=False)
        write_npy(temporary / ROWS, np.array(rows))
        write_index_record(temporary, settings, {"texts": len(rows)}, _WHAT)
    for older in folder.parent.glob(f"words-{unit}-*"):  # words of an older state of the corpus
        if older != folder:
            shutil.rmtree(older, ignore_errors=True)


def fused(rankings: list[NDArray[np.int64]], top_k: int, constant: int = 60) -> NDArray[np.int64]:
    """Fuse rankings by reciprocal ranks: rows by the sum of 1 / (60 + rank) over the rankings with them.

    60 is the constant of Cormack, Clarke and Buettcher (2009). Ties stand in the order of the first ranking.
    """
    sums: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, row in enumerate(ranking.tolist(), start=1):
            sums[row] += 1 / (constant + rank)
    return np.array(sorted(sums, key=sums.__getitem__, reverse=True)[:top_k], np.int64)

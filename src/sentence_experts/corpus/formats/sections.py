"""Sections of articles: their titles, and what kind they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

INTRODUCTION, METHODS, RESULTS, DISCUSSION, OTHER = (
    "introduction", "methods", "results", "discussion", "other",
)  # fmt: skip
KINDS = (INTRODUCTION, METHODS, RESULTS, DISCUSSION, OTHER)

_WORDS = {
    INTRODUCTION: "intro introduction introductory background",
    METHODS: "method methods methodology material materials experimental procedure procedures patients "
    "subjects participants methodological",
    RESULTS: "result results finding findings",
    DISCUSSION: "discussion discussions conclusion conclusions concluding remarks perspective perspectives "
    "summary outlook",
}  # fmt: skip
_KIND_OF_WORD = {word: kind for kind, words in _WORDS.items() for word in words.split()}
# Words that stand beside them in a heading.
_BESIDE_TEXT = (
    "and or of the for with general main brief online star section sections design details study future "
    "overview extended supplementary key"
)
_BESIDE = frozenset(_BESIDE_TEXT.split())
_LETTERS = re.compile(r"[^\W\d_]+")
_NUMERAL = re.compile(r"[ivx]+", re.I)


@dataclass(frozen=True, slots=True)
class Section:
    """A section as its element states it."""

    title: str | None
    sec_type: str | None


def kind_of(sections: Sequence[Section]) -> str:
    """The kind of the innermost of nested sections, given the outermost first: the first known one counts.

    >>> kind_of([Section("2. Materials and methods", None), Section("Results of the pilot", None)])
    'methods'
    """
    kinds = (_kind(section.title, section.sec_type) for section in sections)
    return next((kind for kind in kinds if kind != OTHER), OTHER)


@lru_cache(maxsize=4096)
def _kind(title: str | None, sec_type: str | None) -> str:
    """The kind of one section by its `sec-type` (`materials|methods`), else by its title.

    A title counts if it has no other words ("Results and discussion", not "Effects of drying methods"); the
    first word with a kind decides.
    """
    for text in (sec_type, title):
        words = [word.lower() for word in _LETTERS.findall(text or "")]
        if len(words) > 1 and _NUMERAL.fullmatch(words[0]):
            words = words[1:]
        kinds = [_KIND_OF_WORD.get(word) for word in words]
        known = [kind for kind in kinds if kind]
        if known and all(kind or word in _BESIDE for kind, word in zip(kinds, words, strict=True)):
            return known[0]
    return OTHER

"""Find where the sentences of a paragraph begin: simple rules for scientific English, no model.

A sentence ends with a full stop, question or exclamation mark that white space and a capital letter (or a
citation in words) follow. Citations right after the stop belong to the sentence before it. No sentence ends
after the abbreviations listed here, single capital letters (*E. coli*, J. Smith) and letters with stops
between them (e.g., U.S.), nor before a digit or a small letter. So a sentence after "vitamin C." is taken
for a part of the one before, and so is one that begins with "p53".
"""

from __future__ import annotations

import re

# Each citation is one character: in words ("Smith, 2010"), or a number. These two mean nothing in a text, and
# are narrow: others would double or quadruple the memory of every text.
CITATION_IN_WORDS, CITATION_NUMBER = "\x81", "\x8f"

_ABBREVIATION_TEXT = (
    "al approx bot ca cat cf chap ch cl co corp def dept dr ed eds eq eqn eqs eqns et ex exp ext fig figs fl "
    "inc incl jr lab ltd max min misc mr mrs ms mt no nos nov nr obs op p pp pl prof prop ref refs resp rev "
    "sci sec sect sen ser sp spec spp ssp st subsp suppl supp tab temp univ var viz vol vols vs"
)
_ABBREVIATIONS = frozenset(_ABBREVIATION_TEXT.split())
_MARK = f"[{CITATION_IN_WORDS}{CITATION_NUMBER}]"
_MARKS = rf"{_MARK}(?:[\s,;\-‐-―−]*{_MARK})*"
_STOP = re.compile(
    rf"""[.!?]["'”’»)\]]*"""
    rf"(?:\s?[\[(]{_MARKS}[\])]|{CITATION_NUMBER}(?:[\s,;\-‐-―−]*{_MARK})*)?"
    r"\s+(?=[\"'“‘«(\[]*(\S))"
)
_BEFORE_WORDS = "([{/,;:–—-\"'“‘"
_LONGEST_WORD = 16
_LONGEST_STOP = 4  # characters before a citation that follows: `." [`


def find_sentence_starts(text: str, first: int = 0, last: int | None = None) -> list[int]:
    """Return the places in `text` where its second and further sentences begin, ascending.

    With `first` and `last`, only those between these two citations (the places of their characters).

    >>> text = "Shown by Smith et al. (Fig. 2). It grows in E. coli, e.g. at 37 C."
    >>> [text[start : start + 8] for start in find_sentence_starts(text)]
    ['It grows']
    """
    starts = []
    for stop in _STOP.finditer(text, max(0, first - _LONGEST_STOP), len(text) if last is None else last + 1):
        if not (stop[1].isupper() or stop[1] == CITATION_IN_WORDS):
            continue
        place = stop.start()
        if text[place] != "." or not _is_abbreviation(text[max(0, place - _LONGEST_WORD) : place]):
            starts.append(stop.end())
    return starts


def _is_abbreviation(before: str) -> bool:
    """Return whether the text before a full stop ends with an abbreviation."""
    words = before.rsplit(None, 1)
    word = words[-1].lstrip(_BEFORE_WORDS) if words else ""
    if len(word) == 1:
        return word.isupper()
    return word.lower() in _ABBREVIATIONS or (word[1:2] == "." and len(word) < 6)

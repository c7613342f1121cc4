"""Names of authors, as "Family, Given" or "Family, Given, Suffix"; collective names stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

ET_AL = "et al."
"""Stands last where a record does not name all authors."""
_MORE_AUTHORS = frozenset({"et al", "and others", "others"})
_NO_AUTHORS = frozenset({"no authors listed", "no author name available", "none", "n/a", "null"})
_SUFFIX = re.compile(r"(?:jr|sr|2nd|3rd|4th|ii|iii|iv)\.?", re.IGNORECASE)
_INITIALS = re.compile(r"(?:[^\W\d_][.-]*){1,4}")
_WORDS_OF_GROUPS = """
    group groups consortium consortia collaboration collaborative collaborators committee network
    team society societies association associations organization organisation organizations
    organisations institute institutes institut instituto institution university universität
    universidad université ministry department investigators project program programme initiative
    study studies trial trials center centre centers centres agency foundation council federation
    commission alliance international national inc ltd gmbh
"""
_COLLECTIVE = frozenset(_WORDS_OF_GROUPS.split())


def join_name(family: str | None, given: str | None = None, suffix: str | None = None) -> str | None:
    """Join the parts of a name that are known."""
    return ", ".join(filter(None, (family, given, suffix))) or None


def is_suffix(text: str) -> bool:
    """Return whether a part of a name is one such as "Jr." or "III"."""
    return bool(_SUFFIX.fullmatch(text))


def invert_name(words: Sequence[str]) -> str:
    """Invert a name whose given names come first.

    The family begins with the first particle, or is the last word.

    >>> invert_name("Ludwig van Beethoven".split())
    'van Beethoven, Ludwig'
    """
    whole = " ".join(words)
    # Scripts without small letters, such as Chinese, write the family first.
    if len(words) < 2 or "," in whole or _is_collective(words) or whole.lower() == whole.upper():
        return whole
    end = len(words) - (len(words) > 2 and is_suffix(words[-1]))
    first = next((place for place in range(1, end) if words[place][:1].islower()), end - 1)
    return join_name(" ".join(words[first:end]), " ".join(words[:first]), " ".join(words[end:])) or whole


def invert_shown(name: str) -> str:
    """Invert a name as it is shown, given names first; one that may begin with the family stays as it is.

    >>> invert_shown("Jane A. Doe"), invert_shown("Smith JA")
    ('Doe, Jane A.', 'Smith JA')
    """
    words = name.split()
    last = words[-1] if len(words) > 1 else ""
    may_be_given = _is_initials(last) and len(re.sub(r"[.-]", "", last)) < 3 and not is_suffix(last)
    return " ".join(words) if may_be_given else invert_name(words)


def invert_initials(name: str) -> str:
    """Invert a name with initials ("King ML Jr", "Liu R.", "R. Liu"); any other one stays as it is.

    >>> invert_initials("King ML Jr")
    'King, ML, Jr'
    """
    words = name.split()
    if "," in name or len(words) < 2 or _is_collective(words):
        return name
    end = len(words) - (len(words) > 2 and is_suffix(words[-1]))
    if _is_initials(words[end - 1]):
        return join_name(" ".join(words[: end - 1]), words[end - 1], " ".join(words[end:])) or name
    before = [word for word in words[: end - 1] if not word.islower()]
    has_initials = bool(before) and all(_is_initials(word) and word.endswith(".") for word in before)
    return invert_name(words) if has_initials else name


def _is_collective(words: Sequence[str]) -> bool:
    return any(word.lower().strip("().") in _COLLECTIVE for word in words)


def _is_initials(word: str) -> bool:
    return bool(_INITIALS.fullmatch(word)) and word == word.upper() != word.lower()


def clean_authors(names: Iterable[str]) -> tuple[str, ...]:
    """Write names in one spelling: single spaces, a comma and a space between parts, no ";" in any."""
    cleaned: list[str] = []
    for name in (name for several in names for name in several.split(";")):
        parts = (" ".join(part.split()) for part in name.split(","))
        whole = ", ".join(filter(None, parts))
        # BibTeX has "[No author name available]" with its last word first.
        plain = " ".join(reversed(whole.lower().split(", "))).replace("[", "").replace("]", "")
        if whole and plain not in _NO_AUTHORS:
            cleaned.append(ET_AL if whole.lower().rstrip(".") in _MORE_AUTHORS else whole)
    return tuple(cleaned)

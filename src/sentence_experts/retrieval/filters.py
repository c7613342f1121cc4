"""Filters of the papers that a search looks at: by year, type, journal, domain, keyword and MeSH heading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sentence_experts.errors import UsageError

_YEARS = re.compile(r"(\d{1,4})?(\.\.)?(\d{1,4})?")


@dataclass(frozen=True)
class Filters:
    """Conditions that papers must meet to be found; an empty condition admits all papers.

    Attributes:
        years: first and last year; None for an open end.
        types, journals, domains, keywords, mesh: at least one of these values each, upper or lower case; `*`
            stands for any text. Domains are those that a corpus was fetched by, else its subjects.
        notices: whether corrections, editorials and other notices (`NOTICE_KINDS`) are found too.
    """

    years: tuple[int | None, int | None] = (None, None)
    types: tuple[str, ...] = ()
    journals: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    mesh: tuple[str, ...] = ()
    notices: bool = True

    @classmethod
    def of(
        cls,
        year: str | int | None = None,
        types: Sequence[str] | None = None,
        journals: Sequence[str] | None = None,
        domains: Sequence[str] | None = None,
        keywords: Sequence[str] | None = None,
        mesh: Sequence[str] | None = None,
        notices: bool = True,
    ) -> Filters:
        """Return filters as people write them; `year` is "2015", "2015..2020", "2015.." or "..2020".

        >>> Filters.of("2015..").years
        (2015, None)
        """
        return cls(
            _years(year),
            tuple(types or ()),
            tuple(journals or ()),
            tuple(domains or ()),
            tuple(keywords or ()),
            tuple(mesh or ()),
            notices,
        )

    def __bool__(self) -> bool:
        return self != Filters()


def _years(year: str | int | None) -> tuple[int | None, int | None]:
    if year is None:
        return None, None
    text = str(year).strip()
    match = _YEARS.fullmatch(text)
    if match is None or not (match[1] or match[3]) or (match[3] and not match[2]):
        raise UsageError(f"`year`: {text!r} is not of the form 2015, 2015..2020, 2015.. or ..2020")
    first, last = (int(each) if each else None for each in (match[1], match[3]))
    if not match[2]:
        last = first
    if first is not None and last is not None and first > last:
        raise UsageError(f"`year`: {text!r}: the first year must come before the last")
    return first, last

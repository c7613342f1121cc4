"""Which papers a search looks at: by year, type, journal, domain, keyword and MeSH heading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sentence_experts.errors import UsageError

_YEARS = re.compile(r"(\d{1,4})?(\.\.)?(\d{1,4})?")


@dataclass(frozen=True)
class Filters:
    """What papers must have to be found; an empty condition admits all papers.

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
        types: Sequence[str] = (),
        journals: Sequence[str] = (),
        domains: Sequence[str] = (),
        keywords: Sequence[str] = (),
        mesh: Sequence[str] = (),
        notices: bool = True,
    ) -> Filters:
        """Filters as people write them.

        Args:
            year: "2015", "2015..2020", "2015.." or "..2020".
            types, journals, domains, keywords, mesh: values.
            notices: whether to find notices too.

        Raises:
            UsageError: `year` has another form.

        >>> Filters.of("2015..").years
        (2015, None)
        """
        types, journals, domains, keywords, mesh = (
            tuple(values or ()) for values in (types, journals, domains, keywords, mesh)
        )
        return cls(_years(year), types, journals, domains, keywords, mesh, notices)

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

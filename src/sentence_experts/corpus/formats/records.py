"""Which records of a large source are kept, decided before anything of them is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


class RecordError(Exception):
    """A record that cannot become a paper or a citation; `reason` is a short code for `rejected.jsonl`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class RecordFilter:
    """The records to keep; an empty tuple keeps all.

    Attributes:
        topics: names (any case, `*` for any text) or ids of topics.
        fields: the same of fields or subfields.
        types: types of works.
        years: first and last year.
        languages: such as `en`.
        names: identifiers of single works, as papers are named after them.
        xpac: keep OpenAlex's extension pack too.
    """

    topics: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    years: tuple[int, int] | None = None
    languages: tuple[str, ...] = ()
    names: frozenset[str] | None = None
    xpac: bool = False

    @property
    def chooses(self) -> bool:
        """Whether anything but the extension pack is left out."""
        return bool(
            self.topics or self.fields or self.types or self.years or self.languages or self.names is not None
        )

    def admits(
        self,
        *,
        year: int | None = None,
        kinds: Iterable[str | None] = (),
        language: str | None = None,
        topics: Iterable[Mapping[str, Any]] = (),
        fields: Iterable[Mapping[str, Any]] = (),
        names: Iterable[str | None] = (),
    ) -> bool:
        """Whether a record is kept; topics and fields have an `id` and a `display_name`."""
        return (
            (self.names is None or any(name in self.names for name in names))
            and (self.years is None or (year is not None and self.years[0] <= year <= self.years[1]))
            and (not self.languages or language in self.languages)
            and (not self.types or any(_matches(self.types, kind) for kind in kinds if kind))
            and (not self.topics or _any_matches(self.topics, topics))
            and (not self.fields or _any_matches(self.fields, fields))
        )


ALL = RecordFilter()


def _any_matches(patterns: tuple[str, ...], things: Iterable[Mapping[str, Any]]) -> bool:
    for thing in things:
        name, address = thing.get("display_name"), thing.get("id")
        if isinstance(name, str) and _matches(patterns, name):
            return True
        if isinstance(address, str) and _matches(patterns, address.rpartition("/")[2]):
            return True
    return False


@lru_cache(maxsize=1 << 16)
def _matches(patterns: tuple[str, ...], value: str) -> bool:
    """Whether a value is one of the patterns, in any case; `*` stands for any text."""
    return any(
        re.fullmatch(".*".join(map(re.escape, pattern.casefold().split("*"))), value.casefold(), re.DOTALL)
        for pattern in patterns
    )


def iso_day(value: Any) -> int | None:
    """The day that a text such as `2023-05-16T10:00` begins with, as the number YYYYMMDD.

    >>> iso_day("updated_date=2023-05-16/part_000.gz")
    20230516
    """
    match = _DAY.search(value) if isinstance(value, str) else None
    if match is None and hasattr(value, "isoformat"):  # a date of Parquet
        match = _DAY.match(value.isoformat())
    return int("".join(match.groups())) if match else None

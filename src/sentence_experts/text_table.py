"""A column of texts in a table of any kind, with an identifier for each where the table has them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from sentence_experts.cells import BadRowError, as_identifier, as_text
from sentence_experts.errors import InputError
from sentence_experts.storage import sha256_text
from sentence_experts.table_files import format_of
from sentence_experts.tables import (
    Table,
    fingerprint,
    is_path,
    name_of_table,
    read_columns,
    read_rows,
    to_arrow,
)

logger = logging.getLogger(__name__)

# What headings of texts end with, or have before "of"; others may be the first text.
_USUAL = re.compile(
    r"(\S+ +){0,2}\S*?(abstract|answer|body|comment|content|description|document|feedback|keyword|message"
    r"|name|note|prompt|quer(y|ie)|question|response|review|sentence|summar(y|ie)|term|text|title|tweet)s?[\d_]*"
    r"( of .{1,30})?",
    re.IGNORECASE,
)


class TextRow(NamedTuple):
    """A text, and its identifier where there is an id column."""

    text: str
    id: str | None = None


@cache
def _warn_of_heading(name: str, heading: str) -> None:
    """Warn, once, of the only heading of a table that may be its first text."""
    is_name = heading == heading.lower() and len(heading.split()) == 1
    if not (is_name or _USUAL.fullmatch(heading)):
        logger.warning(
            f"{name}: the first line, {heading[:60]!r}, is taken for the name of the column (give it as "
            "`column` if it is one); if it is a text, write a name above it"
        )


def _read_id(cell: Any) -> str | None:
    # Of numbers as of pandas, 7.0 is 7; a text is as its owner writes it, so that it can be joined again.
    return as_text(cell) if isinstance(cell, str) else as_identifier(cell)


@dataclass(frozen=True)
class TextTable:
    """The texts in a column of a table.

    Attributes:
        source: the table: a path, a data frame, a list of texts, ...
        column: the column with the texts; may be left out if there is only one.
        id_column: a column with an identifier for each text.
    """

    source: Table
    column: str | None = None
    id_column: str | None = None

    @property
    def name(self) -> str:
        """The name in messages."""
        return name_of_table(self.source)

    def rows(self) -> Iterator[TextRow]:
        """Yield the texts in order; a missing one is empty.

        Raises:
            InputError: no such file, a column is missing (lists the columns), or a row cannot be read (names
                it).
        """
        chosen = self.columns()
        for number, row in enumerate(read_rows(self.source, chosen or None), start=1):
            try:
                if isinstance(row, BadRowError):
                    raise row
                text = as_text(row.get(chosen[0])) or ""
                identifier = _read_id(row.get(chosen[-1])) if self.id_column else None
            except BadRowError as error:
                raise InputError(f"{self.name}: row {number}: {error}") from error
            yield TextRow(text, identifier)

    def texts(self) -> list[str]:
        """Return all texts."""
        return [row.text for row in self.rows()]

    def check(self) -> None:
        """Read the first row, so that a wrong file or column is known before a model is loaded.

        Raises:
            InputError: as `rows`.
        """
        next(self.rows(), None)

    def fingerprint(self) -> str:
        """Return a hash of the file, or of the texts in memory."""
        content = fingerprint(self.source)[1]
        # The bytes of a .txt file are other texts under the name of a .csv file.
        kind = format_of(str(self.source)) if is_path(self.source) else None
        return sha256_text(content, kind) if kind in ("lines", "tsv") else content

    def columns(self) -> list[str]:
        """Return the text column, and the id column behind it; nothing if the table is empty.

        Raises:
            InputError: no such file, or a column is missing (lists the columns).
        """
        if not (columns := read_columns(self.source)):
            return []
        known = f"columns are {', '.join(columns)}"
        # The index of a pandas frame comes behind its columns.
        own = columns if is_path(self.source) else getattr(self.source, "columns", columns)
        if self.column is None and len(own) > 1:
            raise InputError(f"{self.name}: name the column with the texts (`column`); {known}")
        is_list = isinstance(self.source, list | tuple) and isinstance(next(iter(self.source), ""), str)
        if self.column is None and not is_list and not is_path(self.source):
            cells = to_arrow(self.source).column(0)  # texts may be in the index, as of value_counts()
            is_empty, kind = cells.null_count == len(cells), cells.type
            is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
            if is_number and not is_empty:
                raise InputError(f"{self.name}: the column {columns[0]!r} holds no texts, but {kind}")
        if self.column is None and is_path(self.source) and format_of(str(self.source)) in ("csv", "tsv"):
            _warn_of_heading(self.name, columns[0])
        chosen = [columns[0] if self.column is None else self.column, *filter(None, [self.id_column])]
        for wanted in chosen:
            if wanted not in columns:
                raise InputError(f"{self.name}: no column {wanted!r}; {known}")
        return list(dict.fromkeys(chosen))

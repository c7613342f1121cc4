"""Values of the cells of tables: texts, identifiers, or nothing.

A missing cell (None, NaN) is None. Lists, objects and bytes are never taken for texts.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.errors import InputError

_NO_TEXTS: Final = (list, tuple, dict, set, bytes, bytearray)
_LARGEST_WHOLE: Final = 1 << 53  # of the numbers that floats hold one by one
# What pandas makes of the integers in a column that also has empty cells.
_WHOLE_AS_FLOAT: Final = re.compile(r"(-?\d+)\.0", re.ASCII)
_SHOWN: Final = 60

_TEXT_KINDS: Final = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null,
)  # fmt: skip
Columns = TypeVar("Columns", pa.Table, pa.RecordBatch)


class BadRowError(Exception):
    """A row that cannot be read or used; the message says why."""


def as_text(value: Any) -> str | None:
    """A cell as text; None if it is missing. Whole floats are written without their point.

    Raises:
        BadRowError: a list, an object or bytes, or half of a surrogate pair, which no file can hold.

    >>> as_text(2001.0), as_text(float("nan"))
    ('2001', None)
    """
    if value is None or value != value:
        return None
    if isinstance(value, _NO_TEXTS):
        raise BadRowError(f"a text is expected, not {str(value)[:_SHOWN]!r}")
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_WHOLE:
        value = int(value)
    text = str(value)
    if broken_letter(text):
        raise BadRowError("half of a surrogate pair, such as \\ud800, is not text")
    return text


def broken_letter(text: str) -> str | None:
    """The first half of a surrogate pair, which no file can hold; None if there is none."""
    if text.isascii():
        return None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return text[error.start]
    return None


def as_identifier(value: Any) -> str | None:
    """A cell as an identifier; None if it is missing. "11.0", which pandas makes of 11, is "11".

    Raises:
        BadRowError: a fraction, True or False, or no text.

    >>> as_identifier(11.0), as_identifier("11.0"), as_identifier("v1.0")
    ('11', '11', 'v1.0')
    """
    if isinstance(value, bool) or (isinstance(value, float) and value == value and not value.is_integer()):
        raise BadRowError(f"{value} is not an identifier")
    text = as_text(value)
    whole = _WHOLE_AS_FLOAT.fullmatch(text) if text else None
    return whole.group(1) if whole else text


def identifiers(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """A column of identifiers as texts, by the same rules; `what` names the column in messages.

    Raises:
        InputError: a fraction, or a column of something else than texts and numbers.
    """
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
        fractions = column.filter(pc.not_equal(pc.floor(column), column))
        if len(fractions):
            raise InputError(
                f"{what}: {fractions[0].as_py()} is not an identifier; give whole numbers or texts"
            )
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    return pc.replace_substring_regex(texts(column, what), r"^(-?[0-9]+)\.0$", r"\1")


def texts(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """A column of texts as strings; `what` names the column in messages.

    Raises:
        InputError: a column of something else: numbers, lists, objects.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_kind(kind) for is_kind in _TEXT_KINDS):
        raise InputError(f"{what}: texts are expected, not a column of {kind}")
    return column.cast(pa.string())


def check_unlike(names: list[str], where: str) -> None:
    """Check that no two columns have one name.

    Raises:
        InputError: two have.
    """
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InputError(f"{where}: two columns are called {twice[0]!r}; rename or remove one")


def with_texts_for_bytes(table: Columns, where: str) -> Columns:
    """A table, or a batch of its rows, with texts where it has bytes that are texts in UTF-8.

    Raises:
        InputError: bytes that are not UTF-8, or two columns of one name; `where` names the table.
    """
    check_unlike(table.schema.names, where)
    for number, field in enumerate(table.schema):
        kind = _text_type(field.type)
        if kind != field.type:
            try:
                table = table.set_column(number, field.name, table.column(number).cast(kind))
            except pa.ArrowException as error:
                raise InputError(
                    f"{where}: column {field.name!r} holds bytes that are not UTF-8; store texts as strings"
                ) from error
    return table


def _text_type(kind: pa.DataType) -> pa.DataType:
    """The type with texts for bytes."""
    if pa.types.is_large_binary(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _text_type(kind.value_type)
        return kind if inner == kind.value_type else pa.list_(inner)
    return kind

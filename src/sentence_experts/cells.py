"""Cells of tables: as texts, identifiers and lists. Lists, objects and bytes are no texts."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from sentence_experts.errors import InputError

NO_VALUES: Final = ("NaN", "nan", "NA", "<NA>", "null", "NULL")  # as pandas and R write empty cells
HALF_A_PAIR: Final = "half of a surrogate pair, such as \\ud800, is not text"
# Pandas writes the integers of a column with empty cells so.
_WHOLE_AS_FLOAT: Final = re.compile(r"(-?\d+)\.0", re.ASCII)


class BadRowError(Exception):
    """A row that cannot be read or used; the message says why."""


def as_text(value: Any) -> str | None:
    """Return a cell as text; None if it is missing. Whole floats are written without their point.

    Raises:
        BadRowError: a list, an object or bytes, or half of a surrogate pair, which no file can hold.

    >>> as_text(2001.0), as_text(float("nan"))
    ('2001', None)
    """
    if value is None or value != value:
        return None
    if isinstance(value, list | tuple | dict | set | bytes | bytearray):
        raise BadRowError(f"a text is expected, not {str(value)[:60]!r}")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:  # which floats hold exactly
        value = int(value)
    text = str(value)
    if find_broken_letter(text):
        raise BadRowError(HALF_A_PAIR)
    return text


def find_broken_letter(text: str) -> str | None:
    """Return the first half of a surrogate pair, which no file can hold; None if there is none."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return text[error.start]
    return None


def parse_list(text: str) -> list[Any] | None:
    """Return the list that a cell holds, as JSON, pandas or NumPy writes it; None of another text.

    >>> parse_list('["rice"]'), parse_list("['rice', 'oak']"), parse_list("['rice' 'oak']"), parse_list("[")
    (['rice'], ['rice', 'oak'], ['rice', 'oak'], None)
    """
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        for read in (json.loads, _read_strings, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
                found = read(text)
                return found if isinstance(found, list) else None
    return None


def _read_strings(text: str) -> list[str]:
    """Read a list of strings of Python; in one of NumPy there are no commas, and Python would join them."""
    tokens = [
        each for each in tokenize.generate_tokens(io.StringIO(text[1:-1]).readline) if each.string.strip()
    ]
    if not all(each.type == tokenize.STRING or each.string == "," for each in tokens):
        raise ValueError("not a list of strings")
    return [ast.literal_eval(each.string) for each in tokens if each.type == tokenize.STRING]


def as_identifier(value: Any) -> str | None:
    """Return a cell as an identifier; None if it is missing. "11.0", which pandas makes of 11, is "11".

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
    """Return a column of identifiers as texts (`as_identifier`); `what` names the column in messages.

    Raises:
        InputError: a fraction, or something else than texts and numbers.
    """
    try:
        return pa.chunked_array([pa.array(map(as_identifier, column.to_pylist()), pa.string())])
    except BadRowError as error:
        raise InputError(f"{what}: {error}; give whole numbers or texts") from error


def texts(column: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Return a column of texts as strings; `what` names the column in messages.

    Raises:
        InputError: a column of something else: numbers, lists, objects.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if str(kind) not in ("string", "large_string", "string_view", "null"):
        raise InputError(f"{what}: texts are expected, not a column of {kind}")
    return column.cast(pa.string())

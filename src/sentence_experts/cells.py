"""Cells of tables: as texts, identifiers and lists. Lists, objects and bytes are no texts."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from sentence_experts.errors import InputError

# As pandas, R, databases, spreadsheets and people write empty cells. "None" may be an answer.
NO_VALUES: Final = (
    *("NaN", "nan", "NA", "<NA>", "null", "NULL", "N/A", "n/a"),
    *("#N/A", "#NAME?", "#VALUE!", "#REF!", "#DIV/0!", "#NUM!", "#NULL!"),
)
HALF_A_PAIR: Final = "half of a surrogate pair, such as \\ud800, is not text"
# Pandas writes the integers of a column with empty cells so.
_WHOLE_AS_FLOAT: Final = re.compile(r"(-?\d+)\.0", re.ASCII)
_OPENING: Final = ("[", "{", "(", "frozenset(", "array(", "Index(")
_CLOSING: Final = ("]", "}", ")")
# "<ArrowStringArray>" before the values, "Length: 2, dtype: str" or "dtype='<U1')" behind them.
_CLASS_OF_ARRAY: Final = re.compile(r"^<\w*Array>\s*")
_LENGTH_OF_ARRAY: Final = re.compile(r"Length: \d+, dtype: [\w\[\]]+$")
_KIND_OF_ARRAY: Final = re.compile(r",\s*dtype=[^()]*(?=\)$)")
# Strings are "'" here: "['a' 'b']" is "['']".
_FLAT: Final = re.compile(
    r"(?:(?:frozenset|array|Index)\()?[\[{(](?=.*')(?:(?:np|numpy)\.str_\('\)|'|None|nan|,)*[\]})]\)?"
)


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


def strip_text(text: str) -> str:
    """Return a text without the white space around it; "" of "NA" and the like, which are empty cells.

    >>> strip_text(" rice "), strip_text("NA")
    ('rice', '')
    """
    text = text.strip()
    return "" if text in NO_VALUES else text


def as_link(value: Any) -> int | None:
    """Return the label of a pair: 1 if its texts are linked, 0 if not, None if it is missing.

    Raises:
        BadRowError: it says something else.

    >>> as_link(1.0), as_link("0.00"), as_link("True"), as_link("nan")
    (1, 0, 1, None)
    """
    if value is None or value != value:
        return None
    if isinstance(value, int | float) and value in (0, 1):  # at once, as there may be millions
        return int(value)
    text = strip_text(str(value))
    if not text:
        return None
    if text.lower() in ("true", "false"):
        return int(text.lower() == "true")
    with suppress(ValueError):
        if (number := float(text)) in (0, 1):
            return int(number)
    raise BadRowError(f"a label of a pair is 1 (linked) or 0, not {text[:40]!r}")


def find_broken_letter(text: str) -> str | None:
    """Return the first half of a surrogate pair, which no file can hold; None if there is none."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return text[error.start]
    return None


def parse_list(text: str) -> list[Any] | None:
    """Return the list that a cell holds, as JSON, Python, NumPy or pandas writes it; None of another text.

    Sets and tuples of strings are lists too; `None` and `nan` in them are left out.

    >>> parse_list('["rice"]'), parse_list("['rice', 'oak']"), parse_list("['rice' 'oak']"), parse_list("[")
    (['rice'], ['rice', 'oak'], ['rice', 'oak'], None)
    """
    text = text.strip()
    for around in (_CLASS_OF_ARRAY, _LENGTH_OF_ARRAY, _KIND_OF_ARRAY):
        text = around.sub("", text).strip()
    if not text.startswith(_OPENING) or not text.endswith(_CLOSING):
        return None
    readers = (json.loads, _read_strings, ast.literal_eval) if text[0] == "[" else (_read_strings,)
    for read in readers:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
            found = read(text)
            return found if isinstance(found, list) else None
    return None


def _read_strings(text: str) -> list[str]:
    """Read a flat collection of strings; in one of NumPy there are no commas, and Python would join them."""
    tokens = [each for each in tokenize.generate_tokens(io.StringIO(text).readline) if each.string.strip()]
    shape = "".join("'" if each.type == tokenize.STRING else each.string for each in tokens)
    if not _FLAT.fullmatch(shape):
        raise ValueError("not a collection of strings")
    return [ast.literal_eval(each.string) for each in tokens if each.type == tokenize.STRING]


def holds_list_of_texts(text: str) -> bool:
    """Return whether a cell holds a list of texts, as a spreadsheet writes it, in place of one.

    >>> holds_list_of_texts("['rice', 'oak']"), holds_list_of_texts("[]"), holds_list_of_texts("[Rice.]")
    (True, True, False)
    """
    # Not "(": a remark may stand in brackets and quotation marks.
    items = parse_list(text) if text.lstrip().startswith(("[", "{")) else None
    return items is not None and all(each is None or isinstance(each, str) for each in items)


def as_identifier(value: Any) -> str | None:
    """Return a cell as an identifier; None if it is missing. "11.0", which pandas makes of 11, is "11".

    Raises:
        BadRowError: a fraction, True or False, or no text.

    >>> as_identifier(11.0), as_identifier("11.0"), as_identifier("v1.0")
    ('11', '11', 'v1.0')
    """
    if isinstance(value, bool) or (isinstance(value, float) and value == value and not value.is_integer()):
        raise BadRowError(f"{value} is not an identifier")
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return str(int(value))
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

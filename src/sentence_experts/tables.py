"""Tables of any common kind, row by row: files, data frames, Arrow tables, datasets.

A row that cannot be read comes as a `BadRowError` in its place, so that callers can name it and continue, or
stop. A missing cell (None, NaN) is None.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sentence_experts.cells import HALF_A_PAIR, BadRowError, find_broken_letter
from sentence_experts.errors import InputError
from sentence_experts.storage import FileState, file_state, sha256_file
from sentence_experts.table_files import (
    Row,
    check_distinct,
    format_of,
    opened,
    parquet_file,
    read_delimited,
    read_json_rows,
    read_lines,
)

# A path, a pandas or polars data frame, a `datasets.Dataset`, anything that Arrow reads, a mapping of
# columns, a list of dicts, or a list of texts.
Table = Any

TEXT: Final = "text"  # the only column of plain text
_ROWS_PER_BATCH: Final = 2048
_LISTED: Final = 20  # columns that a message names
_ROWS_WITH_COLUMNS: Final = 100  # first rows of JSON lines, which tell the columns


def is_path(source: Table) -> bool:
    """Return whether a table is given by its path."""
    return isinstance(source, str | Path)


def name_of_table(source: Table) -> str:
    """Return the name of a table in messages: its path, or "the table"."""
    return str(source) if is_path(source) else "the table"


def check_columns(where: str, wanted: Iterable[str], columns: Iterable[str]) -> None:
    """Check that all wanted columns were found; `where` names the table.

    Raises:
        InputError: some are missing.
    """
    columns = list(columns)
    if missing := [name for name in wanted if name not in columns]:
        raise InputError(
            f"{where} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"it has: {', '.join(columns) or 'none'}"
        )


def fold_columns(where: str, columns: Iterable[str]) -> dict[str, str]:
    """Return the names of columns in small letters -> as they are given.

    Raises:
        InputError: two differ only in their case.

    >>> fold_columns("papers.csv", ["Title", "year "])
    {'title': 'Title', 'year': 'year '}
    """
    folded: dict[str, str] = {}
    for column in columns:
        name = column.strip().lower()
        if name and name in folded:  # spreadsheets have columns without a name to the right
            raise InputError(f"{where}: two columns are named {name!r} but for their case; rename one")
        folded[name] = column
    return folded


def list_unread(names: Mapping[str, str], known: Sequence[str]) -> list[str]:
    """Return the columns (as given -> as read) that are not `known`, with what each may be a misspelling of.

    >>> list_unread({"Titel": "titel", "year": "year"}, ["title", "year"])
    ['Titel (did you mean title?)']
    """
    absent, notes = [each for each in known if each not in names.values()], []
    for stated, column in names.items():
        if column not in known:
            near = difflib.get_close_matches(column, absent, n=1, cutoff=0.75)
            notes.append(f"{stated} (did you mean {near[0]}?)" if near else stated or "one without a name")
    notes.sort(key=lambda each: "did you mean" not in each)
    return [*notes[:_LISTED], "..."] if len(notes) > _LISTED else notes


def read_columns(source: Table) -> list[str]:
    """Return the names of a table's columns; of JSON lines, the names in any row.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table, or two columns have one name.
    """
    with _open_rows(source, []) as (columns, _):
        if is_path(source) and format_of(source) == "json":
            return list(_read_names(Path(source), file_state(source)))
        return columns


@lru_cache(maxsize=256)
def _read_names(file: Path, state: FileState) -> tuple[str, ...]:
    """Return the names in any row of JSON lines, read once of a file that keeps its state."""
    with _open_rows(file, None) as (_, rows):
        return tuple(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))


def read_rows(source: Table, columns: Sequence[str] | None = None) -> Iterator[Row | BadRowError]:
    """Yield the rows of a table in order; a row that cannot be read is a `BadRowError`.

    Empty lines of CSV, TSV and JSON lines are not rows; an empty cell of CSV and TSV is None.

    Args:
        source: the table.
        columns: columns to read at least; others may be left out.

    Raises:
        InputError: the file is missing, of an unknown kind, or no table; it breaks off, or is not UTF-8.
    """
    with _open_rows(source, None if columns is None else list(columns)) as (_, rows):
        yield from rows


@contextmanager
def _open_rows(
    source: Table, wanted: list[str] | None
) -> Iterator[tuple[list[str], Iterable[Row | BadRowError]]]:
    """Open a table; yield the names of its columns, and its rows."""
    if isinstance(source, list | tuple) and source and all(isinstance(text, str) for text in source):
        # Without Arrow, which imports pandas to look at a list.
        yield [TEXT], ({TEXT: text} for text in source)
    elif not is_path(source):
        if isinstance(source, pa.RecordBatchReader):  # and its columns are looked at first
            raise InputError("a RecordBatchReader can be read once only: give its table, read_all()")
        table = to_arrow(source)
        batches = (table if wanted is None else table.select(wanted)).to_batches(_ROWS_PER_BATCH)
        yield table.column_names, (row for batch in batches for row in batch.to_pylist())
    else:
        with opened(source) as (file, kind):
            if kind == "parquet":
                parquet = parquet_file(source, file)
                names = check_distinct(parquet.schema_arrow.names, source)
                ranges = [each.name for each in parquet.schema_arrow if _holds_range(each)]
                if ranges and (wanted is None or {*ranges} & {*wanted}):
                    _register_ranges(source, ranges[0])
                    file.seek(0)
                    parquet = parquet_file(source, file)
                batches = (
                    _without_views(pa.table(each))
                    for each in parquet.iter_batches(_ROWS_PER_BATCH, columns=wanted)
                )
                classes = _read_classes(parquet.schema_arrow)
                yield names, (row for each in batches for row in _name_classes(each, classes).to_pylist())
            elif kind == "json":
                rows = read_json_rows(read_lines(source, file, "\n"))
                first = list(itertools.islice(rows, _ROWS_WITH_COLUMNS))
                objects = [row for row in first if isinstance(row, dict)]
                if first and not objects:
                    raise InputError(f"{source}: row 1: {first[0]}")
                yield list(dict.fromkeys(itertools.chain(*objects))), itertools.chain(first, rows)
            elif kind == "lines":
                lines = (
                    line.removesuffix("\n").removesuffix("\r") for line in read_lines(source, file, "\n")
                )
                yield [TEXT], ({TEXT: line} for line in lines)
            else:
                yield read_delimited(source, read_lines(source, file, ""), "," if kind == "csv" else "\t")


def read_table(source: Table, columns: Sequence[str]) -> pa.Table:
    """Return some columns of a table, whole; the cells of CSV, TSV and plain text are strings.

    Raises:
        InputError: as `read_rows`; or a column is missing, or a row cannot be read (names it).
    """
    check_columns(name_of_table(source), columns, read_columns(source))
    if not is_path(source):
        return to_arrow(source).select(list(columns))
    cells: dict[str, list[Any]] = {name: [] for name in columns}
    for number, row in enumerate(read_rows(source, columns), start=1):
        if isinstance(row, BadRowError):
            raise InputError(f"{source}: row {number}: {row}") from row
        for name, values in cells.items():
            cell = row.get(name)
            if isinstance(cell, str) and find_broken_letter(cell):
                raise InputError(f"{source}: row {number}: {HALF_A_PAIR}")
            values.append(cell)
    try:
        return pa.table(cells)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InputError(f"{source}: a column mixes kinds of values: {error}") from error


def to_arrow(data: Table) -> pa.Table:
    """Return a table in memory as an Arrow table.

    Raises:
        InputError: it is none.

    >>> to_arrow([{"id": 1, "title": "Rice"}, {"id": 2, "title": "Sleep"}]).column_names
    ['id', 'title']
    """
    library = type(data).__module__.partition(".")[0]
    if library == "datasets" and isinstance(data, Mapping):
        raise InputError(
            f"a {type(data).__name__} is several tables: give one of them ({', '.join(map(str, data))})"
        )
    try:
        if isinstance(data, pa.Array | pa.ChunkedArray):
            return _without_views(pa.table({TEXT: data}))
        if type(data).__name__ == "IterableDataset":
            raise InputError("an IterableDataset cannot be read as a table: give a Dataset")
        if library == "datasets" and not hasattr(data, "column_names"):
            return to_arrow(list(data))  # a column
        if hasattr(data, "to_frame"):  # a series of pandas or polars: one column
            data = data.to_frame(data.name or TEXT)
            if library == "pandas":
                data = data.reset_index(drop=True)
        if library == "numpy":
            data = data.tolist()
        if library == "pandas":
            return _without_views(pa.Table.from_pandas(_reset_index(data), preserve_index=False))
        if library == "datasets":
            if data.format["type"] == "custom":
                raise InputError(
                    "the Dataset has a transform: apply it with `map`, or drop it: reset_format()"
                )
            return _name_classes(pa.table(data.with_format("arrow")[:]), class_names(data))
        if isinstance(data, Mapping):
            return _read_mapping(data)
        if hasattr(data, "__arrow_c_stream__"):
            return _without_views(pa.table(data))
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            texts = isinstance(next(iter(data), ""), str)
            for number, item in enumerate(data, start=1):
                if not isinstance(item, str if texts else Mapping):
                    what = "a text" if texts else "a text or a row (a dict)"
                    raise InputError(f"item {number} of the list is {item!r}, not {what}")
            if texts:
                return pa.table({TEXT: pa.array(data, pa.string())})
            names = dict.fromkeys(itertools.chain(*data))
            return pa.table({name: _to_column(name, [row.get(name) for row in data]) for name in names})
    except (pa.ArrowException, TypeError, AttributeError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the {type(data).__name__} cannot be read as a table: {reason}") from error
    raise InputError(f"cannot read a table from {type(data).__name__}: give a path, a data frame or a list")


def _read_mapping(data: Mapping[str, Any]) -> pa.Table:
    """Read a mapping of columns; series of pandas are joined by their index, as pandas does."""
    if any(hasattr(each, "columns") or hasattr(each, "column_names") for each in data.values()):
        raise InputError(
            f"the {type(data).__name__} is several tables ({', '.join(map(str, data))}): give one"
        )
    first: Any = next((each.index for each in data.values() if hasattr(each, "reset_index")), None)
    cells = dict[str, Any]()
    for name, each in data.items():
        # Arrow takes all that can be looped over: the letters of a text, the keys of a mapping.
        if isinstance(each, str | bytes | Mapping | set | frozenset | Iterator):
            hint = (
                " (DataFrame.to_dict('list')), or one of several tables" if isinstance(each, Mapping) else ""
            )
            raise InputError(f"the column {name!r} is a {type(each).__name__}: give a list{hint}")
        if hasattr(each, "reset_index") and not each.index.equals(first):
            if not (each.index.is_unique and set(each.index) == set(first)):
                raise InputError(
                    f"the series {name!r} has another index than the others: reset_index(drop=True)"
                )
            cells[name] = each.reindex(first)
        else:
            cells[name] = _to_column(name, each) if isinstance(each, list) else each
    return _without_views(pa.table(cells))


def _reset_index(frame: Any) -> Any:
    """Return a pandas frame with the levels of its index that have names as columns, as other formats do.

    Not levels that no column can hold, or that have the name of one.
    """
    known = {str(name).strip().lower() for name in frame.columns}
    for place, name in enumerate(frame.index.names):
        if name is not None and str(name).strip().lower() not in known:
            level = frame.index.get_level_values(place)
            with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
                pa.array(level, from_pandas=True)
                known.add(str(name).strip().lower())
                frame = frame.assign(**{str(name): level})
    return frame


def _without_views(table: pa.Table) -> pa.Table:
    """Return a table without the views that polars makes of texts, for which Arrow lacks functions.

    Periods and intervals of pandas (`pandas.cut`) are texts, too: Arrow has numbers in their place.
    """
    for place, name in enumerate(table.column_names):
        column = table[place]
        is_category = pa.types.is_dictionary(column.type)
        kind = column.type.value_type if is_category else column.type
        if getattr(kind, "extension_name", "") in ("pandas.period", "pandas.interval"):
            chunks = map(_name_ranges, column.chunks)
            table = table.set_column(place, name, pa.chunked_array(chunks, pa.string()))
        elif column.type == pa.string_view():
            table = table.set_column(place, name, column.cast(pa.large_string()))
        elif "_view" in str(column.type):  # also in lists and categories
            table = table.set_column(place, name, _to_column(name, column.to_pylist()))
    return table


def _holds_range(field: pa.Field) -> bool:
    """Return whether a column of Parquet has periods or intervals of pandas, of which Arrow does not know."""
    return (field.metadata or {}).get(b"ARROW:extension:name") in (b"pandas.period", b"pandas.interval")


def _register_ranges(source: Table, column: str) -> None:
    """Make pandas tell Arrow of its periods and intervals, as it does once it has written one."""
    try:
        import pandas as pd
    except ImportError as error:
        raise InputError(
            f"{name_of_table(source)}: column {column!r} has periods or intervals of pandas, which is not "
            "installed: install it, or write texts (`astype(str)`)"
        ) from error
    pa.array(pd.Series(pd.period_range("2000", periods=1, freq="Y")))


def _name_ranges(column: pa.Array) -> pa.Array:
    """Return periods or intervals of pandas as texts, which are no lists of numbers, as "[0, 5]" is."""
    if pa.types.is_dictionary(column.type):
        return _name_ranges(column.dictionary).take(column.indices)
    cells = column.to_pandas().astype(object)
    shown = [
        f"{cell.left} to {cell.right}" if getattr(cell, "closed", "") == "both" else str(cell)
        for cell in cells
    ]
    return pa.array(shown, pa.string(), mask=cells.isna().to_numpy())


def class_names(source: Table) -> dict[str, list[str]]:
    """Return the names of the classes in columns of the datasets library: of a `Dataset`, or a file of one.

    A column may also hold lists of classes.
    """
    if not is_path(source):
        is_dataset = type(source).__module__.partition(".")[0] == "datasets"
        return _read_classes(source.features.arrow_schema) if is_dataset else {}
    if format_of(source) != "parquet":
        return {}
    with opened(source) as (file, _):
        return _read_classes(parquet_file(source, file).schema_arrow)


def _read_classes(schema: pa.Schema) -> dict[str, list[str]]:
    """Read the names of the classes that the datasets library notes in a schema."""
    try:
        noted = json.loads((schema.metadata or {}).get(b"huggingface", "{}"))
        features = noted.get("info", {}).get("features", {}).items()
    except (ValueError, AttributeError):
        return {}
    known = {}
    for name, each in features:
        if isinstance(each, list):  # as datasets before version 4 notes lists
            kind = each[0] if each else {}
        else:
            kind = each.get("feature", each) if isinstance(each, dict) else {}
        if isinstance(kind, dict) and kind.get("_type") == "ClassLabel" and kind.get("names"):
            known[name] = list(kind["names"])
    return known


def _name_classes(table: pa.Table, known: Mapping[str, Sequence[str]]) -> pa.Table:
    """Replace the numbers of classes, or lists of them, by the names; -1 is none."""
    for name in known.keys() & set(table.column_names):
        values, names = table[name].to_pylist(), dict(enumerate(known[name]))
        if pa.types.is_integer(table[name].type):
            named = pa.array([names.get(value) for value in values], pa.string())
        elif pa.types.is_nested(table[name].type):
            lists = [row and [names[each] for each in row if each in names] for row in values]
            named = pa.array(lists, pa.list_(pa.string()))
        else:
            continue
        table = table.set_column(table.column_names.index(name), name, named)
    return table


def _to_column(name: str, values: list[Any]) -> pa.Array:
    """Return a column of a list of rows; NaN, as in rows of pandas, is None."""
    if any(isinstance(value, set | frozenset) for value in values):  # whose order differs between runs
        values = [sorted(each, key=str) if isinstance(each, set | frozenset) else each for each in values]
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kinds = dict.fromkeys(type(value).__name__ for value in values if value is not None)
        raise InputError(f"column {name!r} mixes values that fit no column: {', '.join(kinds)}") from error


def fingerprint(source: Table) -> tuple[int, str]:
    """Return (bytes, SHA-256) of a file, or of a table's content in memory.

    Raises:
        InputError: no such file, or no table.
    """
    if is_path(source):
        if not Path(source).is_file():
            raise InputError(f"{source}: no such file")
        return Path(source).stat().st_size, sha256_file(Path(source))
    table = to_arrow(source).combine_chunks().replace_schema_metadata(None)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    content = stream.getvalue()
    return content.size, hashlib.sha256(content).hexdigest()

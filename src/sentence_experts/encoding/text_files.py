"""Texts in many files, in the order of the files' names."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import check_listed, walk_files
from sentence_experts.table_files import format_of, opened, parquet_file
from sentence_experts.tables import Table, is_path
from sentence_experts.text_table import TextRow, TextTable

logger = logging.getLogger(__name__)

_IN_FOLDERS = ("parquet", "json")


def find_tables(sources: Table, column: str | None, id_column: str | None) -> list[TextTable]:
    """Return the tables that `sources` names: files, folders, patterns with `*`.

    Raises:
        InputError: there is none.
        UsageError: one is named twice, or a table in memory is among them.
    """
    given: list[Any] = [sources] if is_path(sources) else []
    given += sources if isinstance(sources, list | tuple) else []
    if not given or not all(map(is_path, given)):
        raise UsageError("a folder of vectors is made of files: give their paths, or a file as `out`")
    found = [file for each in given for file in _find_files(Path(each))]
    places: dict[Path, Path] = {}
    for file in found:
        if (other := places.setdefault(file.resolve(), file)) is not file:
            raise UsageError(f"{file}: given twice" + (f", as {other} too" if other != file else ""))
    return [TextTable(file, column, id_column) for file in found]


def _find_files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    # Folders whose names are written out may have brackets in them, or be hidden.
    base = next(folder for folder in (source, *source.parents) if folder.is_dir())
    pattern = source.relative_to(base).parts or ("**",)
    if "**" in pattern:  # as pathlib has it, but into folders that are links, too
        first = pattern.index("**")
        begun = base.glob("/".join(pattern[:first])) if first else [base]
        files = [
            file
            for start in begun
            for file in walk_files(start)
            if _fits(file.relative_to(start).parts, pattern[first:])
        ]
    else:
        files = [file for file in base.glob("/".join(pattern)) if file.is_file()]
    written = {part[0] for part in source.relative_to(base).parts}  # what a pattern names is not hidden
    hides = {*"._"} - written

    def hidden(file: Path) -> bool:
        return any(part[0] in hides for part in file.relative_to(base).parts if part != "..")

    # Folders in which the files of a pattern lie, as far as they are written out.
    inner, *deeper = str(source.relative_to(base).parent).split("**")
    is_whole = base == source or bool(deeper)
    for folder in [base] if base == source or inner in ("", ".") else base.glob(inner):
        if folder.is_dir() and not hidden(folder):
            check_listed(folder, hidden="._" if is_whole else None)
    tables = sorted(file for file in files if format_of(file) and file.is_file() and not hidden(file))
    found = [file for file in tables if format_of(file) in _IN_FOLDERS]
    # A link to one is no other one.
    found = list({file.resolve(): file for file in reversed(found)}.values())[::-1]
    if not found:
        others = f"; give the path of each other file, such as {tables[0].name}" if tables else ""
        raise InputError(f"{source}: no such file, or no Parquet or JSON-lines files in it{others}")
    if left_out := [file for file in tables if format_of(file) not in _IN_FOLDERS]:
        logger.warning(
            f"{source}: {len(left_out)} files that are neither Parquet nor JSON lines are left out, such as "
            f"{left_out[0].name}; give their paths too"
        )
    return found


def _fits(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return len(pattern) == 1 or any(_fits(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


def count_rows(tables: Sequence[TextTable]) -> int | None:
    """Return the number of rows, if it can be known before reading the texts; check that ids are distinct.

    Raises:
        InputError: a row has no id or cannot be read, or two rows have one id.
    """
    if tables[0].id_column is not None:
        return _count_ids(tables)
    if any(format_of(table.name) != "parquet" for table in tables):
        return None
    rows = 0
    for table in tables:
        with opened(table.name) as (content, _):
            rows += parquet_file(table.name, content).metadata.num_rows
    return rows


def _count_ids(tables: Sequence[TextTable]) -> int:
    """Return the number of rows, all with their own id."""
    known: set[str] = set()
    for table in tables:
        name = table.columns()[-1]
        for number, row in enumerate(TextTable(table.source, name, name).rows(), start=1):
            if not row.id:
                raise InputError(f"{table.name}: row {number} has no {name}")
            if row.id in known:
                raise InputError(f"{table.name}, row {number}: an earlier row has the id {row.id!r} too")
            known.add(row.id)
    return len(known)


def read_chunks(
    tables: Sequence[TextTable], size: int, counts: dict[str, int] | None = None
) -> Iterator[list[TextRow]]:
    """Yield the texts of all tables in order, `size` at a time.

    The numbers of texts and of empty texts are added to `counts`.
    """
    rows = itertools.chain.from_iterable(table.rows() for table in tables)
    while chunk := list(itertools.islice(rows, size)):
        if counts is not None:
            counts["texts"] += len(chunk)
            counts["empty"] += sum(not row.text.strip() for row in chunk)
        yield chunk

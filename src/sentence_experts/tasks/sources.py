"""The records of a dataset: from files, tables in memory, hub datasets and corpora, with their splits."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import pyarrow.parquet as pq

from sentence_experts.cells import BadRowError
from sentence_experts.corpus.corpus_folder import PAPERS_SCHEMA, CorpusFolder
from sentence_experts.corpus.paper import NOTICE_KINDS
from sentence_experts.errors import InputError, require
from sentence_experts.pairs.pair_tables import describe_unread, fold_split, is_no_and_yes, read_split
from sentence_experts.pairs.table_folder import parquet_hash
from sentence_experts.storage import sha256_file
from sentence_experts.table_files import Row as Values
from sentence_experts.tables import check_columns, class_names, read_columns, read_rows, to_arrow
from sentence_experts.tasks.task_file import Kind, Source, Split

# A corpus holds lists of these; a label is one of them.
CORPUS_ALIASES = {"subject": "subjects", "keyword": "keywords"}
PAPER_ID = "paper_id"

logger = logging.getLogger(__name__)


class Record(NamedTuple):
    """A record of a source: its place, its split if the source has splits, and column -> value."""

    place: str
    split: str | None
    values: Values | BadRowError


class Records(NamedTuple):
    """The splits that a source has, role -> the columns it is in, the records, and what the manifest says."""

    splits: tuple[str, ...]
    columns: dict[str, tuple[str, ...]]
    records: list[Record]
    described: dict[str, Any]


class _Table(NamedTuple):
    """One table of a source, not read yet; its rows have their places."""

    where: str  # in messages
    columns: Sequence[str]
    rows: Iterable[tuple[str, Values | BadRowError]]
    classes: Mapping[str, list[str]] = MappingProxyType({})
    is_published: bool = False


def read_records(source: Source, kind: Kind, folder: Path) -> Records:
    """Read the records of a source whose paths are relative to `folder`.

    Papers of a corpus that were retracted are bad ones, and so are notices, unless a column names kinds.

    Raises:
        InputError: a file, corpus or hub dataset that is not there or lacks a column.
    """
    named = [name for own in source.columns(kind).values() for name in own]
    wanted = list(dict.fromkeys([*named, *([source.group] if source.group else [])]))
    ids = [PAPER_ID] if source.corpus is not None else []
    if source.corpus is not None:
        tables, described = _open_corpus(resolve_path(source.corpus, folder), wanted)
    elif source.hub is not None:
        tables, described = _open_hub(source, kind, wanted, folder)
    elif source.table is not None:
        tables, described = _open_table(source.table)
    else:
        tables, described = _open_files(source, folder)
    for table in tables.values():
        check_columns(table.where, wanted, table.columns)
    columns = source.columns(kind, [name for table in tables.values() for name in table.columns])
    found = [role for role in columns if role in kind.optional and getattr(source, role) is None]
    # If these are classes of the datasets library that say no and yes, they are numbers.
    scores = () if kind.labelled else (*columns.get("score", ()), *columns.get("label", ()))
    splits, records = tuple(filter(None, tables)), list[Record]()
    for split, table in tables.items():
        # A column that is found has the name it has in the first table, also where that differs in case.
        own = source.columns(kind, table.columns)
        names = {name: name for name in (*wanted, *ids)}
        names |= {columns[role][0]: own[role][0] for role in found if role in own}
        column = None if split is not None else _find_split(table, names.values())
        names |= {} if column is None else {column: column}
        _name_unread(table, names.values(), {*kind.optional} - {*columns} - {*source.model_fields_set})
        read = [record._replace(split=split) for record in _read(table, names, scores)]
        if column is not None:
            try:
                read, splits = _divide(read, column, table.where, may_be_one=source.hub is None)
                described |= {"splits": splits}
            except InputError as error:
                if source.hub is None:
                    raise
                logger.warning(f"not read: the column {column}; {error}")  # of published data, as it may be
        records += read
    return Records(splits, columns, records, described)


def resolve_path(written: str, folder: Path) -> Path:
    """Return a path of a task file in `folder`, with ${VAR} replaced; InputError if it is not set."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise InputError(f"{written}: the environment variable {match[1]} is not set")
        return os.environ[match[1]]

    return folder / Path(re.sub(r"\$\{(\w+)\}", value, written)).expanduser()


# The split of a table -> the table; None: it is the only one, and not split yet.
_Opened = tuple[dict[str | None, _Table], dict[str, Any]]


def _open_files(source: Source, folder: Path) -> _Opened:
    given = {None: source.file} if source.file else source.files or {}
    tables, files = dict[str | None, _Table](), {}
    for split, written in given.items():
        path = resolve_path(written, folder)
        columns = read_columns(path)
        files[split] = {"name": path.name, "sha256": sha256_file(path)}
        tables[split] = _Table(str(path), columns, _number(f"{path.name} ", path), class_names(path))
    return tables, {"file": files[None]} if None in files else {"files": files}


def _open_table(given: Any) -> _Opened:
    table = to_arrow(given)
    described = {"rows": table.num_rows, "sha256": parquet_hash(table)}
    opened = _Table("the table", table.column_names, _number("", table), class_names(given))
    return {None: opened}, {"table": described}


def _open_hub(source: Source, kind: Kind, wanted: list[str], folder: Path) -> _Opened:
    require("datasets", "models")
    from sentence_experts.compat.datasets import dataset_fingerprint, load_splits

    hub = str(source.hub)
    local = resolve_path(hub, folder)
    loaded = load_splits(str(local) if local.is_dir() else hub, source.config)
    named = {str(split): name for split, name in (source.splits or {}).items()}
    usual = {fold_split(name): name for name in loaded} | {name: name for name in loaded}
    splits = named or {name: usual[name] for name in get_args(Split) if name in usual}
    unknown = [name for name in splits.values() if name not in loaded]
    if unknown or not splits:
        what = f"no split {unknown[0]!r}" if unknown else "no split of a usual name"
        raise InputError(f"{hub} has {what}; it has {', '.join(loaded)}: name splits: {{train: ...}}")
    if left_out := [name for name in loaded if name not in splits.values()]:
        log = logger.warning if local.is_dir() else logger.info
        log(f"{hub}: not read: the split{'s' * (len(left_out) > 1)} {', '.join(left_out)}")
    # A dataset with nothing but "train" has not been split yet.
    is_whole = set(splits) == {"train"} and not named
    tables = dict[str | None, _Table]()
    for split, name in splits.items():
        table, own = loaded[name], None if is_whole else split
        read = [
            column  # others may be pictures or sounds
            for column in table.column_names
            if column in wanted or column.strip().lower() in (*kind.optional, "split")
        ]
        rows = _number(f"{hub} {name} ", table.select_columns(read))
        classes, is_published = class_names(table), not local.is_dir()
        tables[own] = _Table(f"{hub}, split {name}", table.column_names, rows, classes, is_published)
    fingerprints = {split: dataset_fingerprint(loaded[name]) for split, name in splits.items()}
    return tables, {"hub": hub, "config": source.config, "fingerprints": fingerprints}


def _open_corpus(path: Path, wanted: list[str]) -> _Opened:
    corpus = CorpusFolder.open(path)
    check_columns(str(corpus.path), wanted, sorted({*PAPERS_SCHEMA.names, *CORPUS_ALIASES}))

    def rows() -> Iterator[tuple[str, Values | BadRowError]]:
        with pq.ParquetFile(corpus.papers) as file:
            for paper in (paper for batch in file.iter_batches() for paper in batch.to_pylist()):
                values = paper | {alias: paper[column] for alias, column in CORPUS_ALIASES.items()}
                if paper["retracted"]:
                    values = BadRowError("the paper was retracted")
                elif paper["kind"] in NOTICE_KINDS and not {"kind", "article_type"} & {*wanted}:
                    values = BadRowError(f"no research: {paper['kind']}")
                yield f"{corpus.path.name} {paper[PAPER_ID]}", values

    table = _Table(str(corpus.path), [*wanted, PAPER_ID], rows())
    return {None: table}, {"corpus": {"fingerprint": corpus.fingerprint()}}


def _number(where: str, data: Any) -> Iterator[tuple[str, Values | BadRowError]]:
    for number, row in enumerate(read_rows(data), start=1):
        yield f"{where}row {number}", row


def _name_unread(table: _Table, used: Collection[str], open_roles: Collection[str]) -> None:
    """Log the columns that are not read; warn of them if one may be of labels or splits.

    Also warn of one whose name is near that of an optional role.
    """
    if unread := [name for name in table.columns if name not in used]:
        are_linked = "label" in open_roles
        matters = are_linked or any(name.strip().lower() == "split" for name in unread)
        log = logger.warning if matters and not table.is_published else logger.info
        log(f"{table.where}: {describe_unread(unread, not are_linked)}")
    roles = ((name, get_close_matches(name.strip().lower(), open_roles, 1, cutoff=0.75)) for name in unread)
    # "negative_7" is one of several.
    near = [f"{role[0]}: {name}" for name, role in roles if role and not name[-1].isdecimal()]
    if near:
        logger.warning(f"{table.where}: columns that are not read; to read them, give {'; '.join(near)}")


def _find_split(table: _Table, used: Collection[str]) -> str | None:
    """Return the column that gives the splits of rows, if a table has one."""
    named = [name for name in table.columns if name not in used and name.strip().lower() == "split"]
    return next((name for name in named if name == "split"), next(iter(named), None))


def _read(table: _Table, names: Mapping[str, str], scores: Sequence[str]) -> Iterator[Record]:
    """Yield the cells of some columns, by their names here: name -> column.

    Those of `scores` whose classes say no and yes are 0 and 1.
    """
    names = {name: own for name, own in names.items() if own in table.columns}
    known = {
        name: classes
        for name in scores
        if name in names and is_no_and_yes(classes := table.classes.get(names[name], []))
    }
    for place, row in table.rows:
        if isinstance(row, dict):
            row = {name: row.get(own) for name, own in names.items()}
            row |= {name: each.index(row[name]) for name, each in known.items() if row[name] in each}
        yield Record(place, None, row)


def _divide(
    records: Iterable[Record], column: str, where: str, *, may_be_one: bool
) -> tuple[list[Record], tuple[str, ...]]:
    """Return records with the splits that a column gives them, and these splits.

    Raises:
        InputError: a split of another name, or all rows are of one split and may not be.
    """
    divided = []
    for record in records:
        cells = {} if isinstance(record.values, BadRowError) else record.values
        # Spreadsheets end in empty rows.
        split = read_split(cells[column], where) if any(cells.values()) else None
        divided.append(record._replace(split=split))
    given = {record.split for record in divided}
    if not may_be_one and len(given - {None}) < 2:
        raise InputError(f"{where}: all rows are of one split")
    return divided, tuple(name for name in get_args(Split) if name in given)

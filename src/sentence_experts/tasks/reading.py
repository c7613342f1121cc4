"""The records of a dataset, from files, corpora, hub datasets and tables: one dict of columns each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pyarrow.parquet as pq

from sentence_experts.corpus.corpus_folder import PAPERS_SCHEMA, CorpusFolder
from sentence_experts.errors import InputError, require
from sentence_experts.pairs.table_folder import parquet_hash
from sentence_experts.storage import sha256_file
from sentence_experts.tables import BadRowError, check_columns, read_columns, read_rows, to_arrow
from sentence_experts.tasks.kinds import Kind
from sentence_experts.tasks.source import Source, Split, resolved

# A corpus holds lists of these; a label is one of them.
CORPUS_ALIASES = {"subject": "subjects", "keyword": "keywords"}
PAPER_ID = "paper_id"


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it was read.

    Attributes:
        where: the file or dataset, and the place in it.
        split: its split, if the source has splits.
        values: column -> value; None if the record could not be read.
        problem: why it could not be read.
    """

    where: str
    split: str | None
    values: Mapping[str, Any] | None
    problem: str = ""


class Reading(NamedTuple):
    """The splits that a source has, its records, and its description for the manifest."""

    splits: tuple[str, ...]
    records: Iterable[Record]
    described: dict[str, Any]


def read(source: Source, kind: Kind, folder: Path, keep_retracted: bool = False) -> Reading:
    """Open a source whose paths are relative to `folder`; its columns are checked.

    Papers of a corpus that were retracted are unusable records, unless they are to be kept.

    Raises:
        InputError: a file, corpus or hub dataset that is not there or lacks a column.
    """
    names = [name for columns in source.columns(kind).values() for name in columns]
    wanted = list(dict.fromkeys([*names, *([source.group] if source.group else [])]))
    if source.corpus is not None:
        return _read_corpus(resolved(source.corpus, folder), wanted, keep_retracted)
    if source.hub is not None:
        return _read_hub(source, source.hub, wanted, folder)
    if source.table is not None:
        return _read_table(source.table, wanted)
    return _read_files(source, wanted, folder)


def _read_files(source: Source, wanted: list[str], folder: Path) -> Reading:
    given = {None: source.file} if source.file else source.files or {}
    paths = {split: resolved(written, folder) for split, written in given.items()}
    for path in paths.values():
        check_columns(str(path), wanted, read_columns(path))
    files = {split: {"name": path.name, "sha256": sha256_file(path)} for split, path in paths.items()}
    records = (record for split, path in paths.items() for record in _rows_of(path, split))
    if None in paths:
        return Reading((), records, {"file": files[None]})
    return Reading(tuple(map(str, paths)), records, {"files": files})


def _rows_of(path: Path, split: str | None) -> Iterator[Record]:
    for number, row in enumerate(read_rows(path), start=1):
        where = f"{path.name} row {number}"
        if isinstance(row, BadRowError):
            yield Record(where, split, None, str(row))
        else:
            yield Record(where, split, row)


def _read_corpus(path: Path, wanted: list[str], keep_retracted: bool) -> Reading:
    corpus = CorpusFolder.open(path)
    check_columns(str(corpus.path), wanted, sorted({*PAPERS_SCHEMA.names, *CORPUS_ALIASES}))
    return Reading((), _papers(corpus, keep_retracted), {"corpus": {"fingerprint": corpus.fingerprint()}})


def _papers(corpus: CorpusFolder, keep_retracted: bool) -> Iterator[Record]:
    with pq.ParquetFile(corpus.papers) as file:
        for batch in file.iter_batches():
            for paper in batch.to_pylist():
                where = f"{corpus.path.name} {paper[PAPER_ID]}"
                if paper["retracted"] and not keep_retracted:
                    yield Record(where, None, None, "the paper was retracted")
                else:
                    lists = {alias: paper[column] for alias, column in CORPUS_ALIASES.items()}
                    yield Record(where, None, paper | lists)


def _read_hub(source: Source, hub: str, wanted: list[str], folder: Path) -> Reading:
    require("datasets", "models")
    from sentence_experts.compat.datasets import dataset_fingerprint, load_splits

    local = resolved(hub, folder)
    loaded = load_splits(str(local) if local.is_dir() else hub, source.config)
    splits = {str(split): name for split, name in (source.splits or {}).items()}
    if unknown := [name for name in splits.values() if name not in loaded]:
        raise InputError(f"{hub} has no split {unknown[0]!r}; it has {', '.join(loaded)}")
    splits = splits or {name: name for name in get_args(Split) if name in loaded}
    if not splits:
        raise InputError(
            f"{hub} has the splits {', '.join(loaded)}; name those to use: splits: {{train: ...}}"
        )
    for name in splits.values():
        check_columns(f"{hub}, split {name},", wanted, loaded[name].column_names)
    # A dataset with nothing but "train" has not been split yet.
    is_whole = set(splits) == {"train"} and not source.splits
    records = (
        record
        for split, name in splits.items()
        for record in _hub_records(f"{hub} {name}", None if is_whole else split, loaded[name])
    )
    fingerprints = {split: dataset_fingerprint(loaded[name]) for split, name in splits.items()}
    described = {"hub": hub, "config": source.config, "fingerprints": fingerprints}
    return Reading(() if is_whole else tuple(splits), records, described)


def _hub_records(where: str, split: str | None, dataset: Any) -> Iterator[Record]:
    # A ClassLabel: numbers that have names.
    named = {name: each.int2str for name, each in dataset.features.items() if hasattr(each, "int2str")}
    for number, row in enumerate(dataset, start=1):
        names = {column: int2str(row[column]) for column, int2str in named.items() if row[column] is not None}
        yield Record(f"{where} row {number}", split, row | names)


def _read_table(given: Any, wanted: list[str]) -> Reading:
    table = to_arrow(given)
    check_columns("the table", wanted, table.column_names)
    named = table["split"].unique().to_pylist() if "split" in table.column_names else []
    splits = tuple(name for name in get_args(Split) if name in named)
    records = (
        Record(f"row {number}", row["split"] if splits else None, row)
        for number, row in enumerate(table.to_pylist(), start=1)
    )
    return Reading(splits, records, {"table": {"rows": table.num_rows, "sha256": parquet_hash(table)}})

"""The records of a dataset, from files, corpora, hub datasets and tables: one dict of columns each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

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


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source holds: its own splits, its records, and its description for the manifest."""

    splits: tuple[str, ...]
    records: Iterable[Record]
    described: dict[str, Any]


def read(source: Source, kind: Kind, folder: Path, keep_retracted: bool = False) -> Reading:
    """Open a source whose paths are relative to `folder`; its columns are checked.

    Papers of a corpus that were retracted are unusable records, unless they are to be kept.

    Raises:
        InputError: a file, corpus or hub dataset that is not there or lacks a column.
    """
    place = next(place for place in ("corpus", *READERS) if getattr(source, place) is not None)
    if place == "corpus":
        return _read_corpus(source, kind, folder, keep_retracted)
    return READERS[place](source, kind, folder)


def wanted_columns(source: Source, kind: Kind) -> list[str]:
    """The columns that records must have, each once."""
    names = [name for columns in source.columns(kind).values() for name in columns]
    return list(dict.fromkeys([*names, *([source.group] if source.group else [])]))


# ---- files ---------------------------------------------------------------------------------------


def _read_file(source: Source, kind: Kind, folder: Path) -> Reading:
    path = resolved(str(source.file), folder)
    described = _checked_file(path, source, kind)
    return Reading((), _records_of(path, None), {"file": described})


def _read_files(source: Source, kind: Kind, folder: Path) -> Reading:
    paths = {split: resolved(written, folder) for split, written in (source.files or {}).items()}
    described = {split: _checked_file(path, source, kind) for split, path in paths.items()}
    records = (record for split, path in paths.items() for record in _records_of(path, split))
    return Reading(tuple(paths), records, {"files": described})


def _checked_file(path: Path, source: Source, kind: Kind) -> dict[str, str]:
    check_columns(str(path), wanted_columns(source, kind), read_columns(path))
    return {"name": path.name, "sha256": sha256_file(path)}


def _records_of(path: Path, split: str | None) -> Iterator[Record]:
    for number, row in enumerate(read_rows(path), start=1):
        where = f"{path.name} row {number}"
        if isinstance(row, BadRowError):
            yield Record(where, split, None, str(row))
        else:
            yield Record(where, split, row)


# ---- corpora -------------------------------------------------------------------------------------


def _read_corpus(source: Source, kind: Kind, folder: Path, keep_retracted: bool) -> Reading:
    corpus = CorpusFolder.open(resolved(str(source.corpus), folder))
    names = {*PAPERS_SCHEMA.names, *CORPUS_ALIASES}
    check_columns(str(corpus.path), wanted_columns(source, kind), sorted(names))
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


# ---- hub datasets --------------------------------------------------------------------------------


def _read_hub(source: Source, kind: Kind, folder: Path) -> Reading:
    require("datasets", "models")
    from sentence_experts.compat.datasets import dataset_fingerprint, load_splits

    local = resolved(str(source.hub), folder)
    loaded = load_splits(str(local) if local.is_dir() else str(source.hub), source.config)
    if source.splits:
        unknown = [name for name in source.splits.values() if name not in loaded]
        if unknown:
            raise InputError(f"{source.hub} has no split {unknown[0]!r}; it has {', '.join(loaded)}")
        splits = {str(split): name for split, name in source.splits.items()}
    else:
        splits = {name: name for name in get_args(Split) if name in loaded}
        if not splits:
            raise InputError(
                f"{source.hub} has the splits {', '.join(loaded)}; name those to use: splits: {{train: ...}}"
            )
    for name in splits.values():
        wanted = wanted_columns(source, kind)
        check_columns(f"{source.hub}, split {name},", wanted, loaded[name].column_names)
    fingerprints = {split: dataset_fingerprint(loaded[name]) for split, name in splits.items()}
    # A dataset with nothing but "train" has not been split yet.
    only_train = set(splits) == {"train"} and not source.splits
    records = (
        record
        for split, name in splits.items()
        for record in _hub_records(f"{source.hub} {name}", None if only_train else split, loaded[name])
    )
    described = {"hub": source.hub, "config": source.config, "fingerprints": fingerprints}
    return Reading(() if only_train else tuple(splits), records, described)


def _hub_records(where: str, split: str | None, dataset: Any) -> Iterator[Record]:
    # A ClassLabel: numbers that have names.
    named = {name: each.int2str for name, each in dataset.features.items() if hasattr(each, "int2str")}
    for number, row in enumerate(dataset, start=1):
        names = {column: int2str(row[column]) for column, int2str in named.items() if row[column] is not None}
        yield Record(f"{where} row {number}", split, row | names)


# ---- tables in memory ----------------------------------------------------------------------------


def _read_table(source: Source, kind: Kind, folder: Path) -> Reading:
    table = to_arrow(source.table)
    check_columns("the table", wanted_columns(source, kind), table.column_names)
    named = table["split"].unique().to_pylist() if "split" in table.column_names else []
    splits = tuple(name for name in get_args(Split) if name in named)
    records = (
        Record(f"row {number}", row["split"] if splits else None, row)
        for number, row in enumerate(table.to_pylist(), start=1)
    )
    return Reading(splits, records, {"table": {"rows": table.num_rows, "sha256": parquet_hash(table)}})


READERS = {
    "file": _read_file,
    "files": _read_files,
    "hub": _read_hub,
    "table": _read_table,
}

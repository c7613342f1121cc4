"""The rows of a dataset: texts, a label or a score, a group; records that give none are set aside."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pyarrow.parquet as pq

from sentence_experts.corpus.corpus_folder import PAPERS_SCHEMA, CorpusFolder
from sentence_experts.errors import InputError, require
from sentence_experts.pairs.table_folder import parquet_hash
from sentence_experts.storage import sha256_file, sha256_text
from sentence_experts.tables import (
    BadRowError,
    as_text,
    check_columns,
    read_columns,
    read_rows,
    to_arrow,
)
from sentence_experts.tables import Row as Values
from sentence_experts.tasks.task_file import Kind, Source, Split

VARIABLE = re.compile(r"\$\{(\w+)\}")
# A corpus holds lists of these; a label is one of them.
CORPUS_ALIASES = {"subject": "subjects", "keyword": "keywords"}
PAPER_ID = "paper_id"
# "Re: Re^2: Fwd: subject" is of the thread "subject".
_REPLY = re.compile(r"^(?:\s*(?:re|fwd?)\s*(?:\^\s*\d+|\[\s*\d+\s*\])?\s*:)+", re.IGNORECASE)
_NOT_WORDS = re.compile(r"[\W_]+")
_ID_LENGTH = 16


class Record(NamedTuple):
    """One record as it was read: its place, its split if the source has splits, and column -> value."""

    where: str
    split: str | None
    values: Values | BadRowError


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


def resolved(written: str, folder: Path) -> Path:
    """A path of a task file in `folder`: ${VAR} is replaced, and the path is relative to the file.

    Raises:
        InputError: a variable is not set.
    """
    for name in VARIABLE.findall(written):
        if name not in os.environ:
            raise InputError(f"{written}: the environment variable {name} is not set")
    filled = VARIABLE.sub(lambda match: os.environ[match.group(1)], written)
    return folder / Path(filled).expanduser()


def _numbered(where: str, rows: Iterable[Values | BadRowError], split: str | None) -> Iterator[Record]:
    for number, row in enumerate(rows, start=1):
        yield Record(f"{where}row {number}", split, row)


def _read_files(source: Source, wanted: list[str], folder: Path) -> Reading:
    given = {None: source.file} if source.file else source.files or {}
    paths = {split: resolved(written, folder) for split, written in given.items()}
    for path in paths.values():
        check_columns(str(path), wanted, read_columns(path))
    files = {split: {"name": path.name, "sha256": sha256_file(path)} for split, path in paths.items()}
    records = (
        record
        for split, path in paths.items()
        for record in _numbered(f"{path.name} ", read_rows(path), split)
    )
    if None in paths:
        return Reading((), records, {"file": files[None]})
    return Reading(tuple(map(str, paths)), records, {"files": files})


def _read_corpus(path: Path, wanted: list[str], keep_retracted: bool) -> Reading:
    corpus = CorpusFolder.open(path)
    check_columns(str(corpus.path), wanted, sorted({*PAPERS_SCHEMA.names, *CORPUS_ALIASES}))

    def records() -> Iterator[Record]:
        with pq.ParquetFile(corpus.papers) as file:
            for paper in (paper for batch in file.iter_batches() for paper in batch.to_pylist()):
                values = paper | {alias: paper[column] for alias, column in CORPUS_ALIASES.items()}
                if paper["retracted"] and not keep_retracted:
                    values = BadRowError("the paper was retracted")
                yield Record(f"{corpus.path.name} {paper[PAPER_ID]}", None, values)

    return Reading((), records(), {"corpus": {"fingerprint": corpus.fingerprint()}})


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
        for record in _numbered(f"{hub} {name} ", _named(loaded[name]), None if is_whole else split)
    )
    fingerprints = {split: dataset_fingerprint(loaded[name]) for split, name in splits.items()}
    described = {"hub": hub, "config": source.config, "fingerprints": fingerprints}
    return Reading(() if is_whole else tuple(splits), records, described)


def _named(dataset: Any) -> Iterator[Values]:
    """The rows of a hub dataset, with the names of a ClassLabel for its numbers."""
    named = {name: each.int2str for name, each in dataset.features.items() if hasattr(each, "int2str")}
    for row in dataset:
        yield row | {name: int2str(row[name]) for name, int2str in named.items() if row[name] is not None}


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


# ---- from records to rows ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A pair of texts, or one text with its label.

    Attributes:
        anchor: the text; of a pair the first.
        negative: a text that is not an answer to the anchor, if given.
        score: the similarity of the texts of a pair.
        group: rows of one group stay in one split.
        split: the source's split of the row, if it has splits.
    """

    anchor: str
    positive: str | None = None
    negative: str | None = None
    label: str | None = None
    score: float | None = None
    group: str | None = None
    split: str | None = None

    def texts(self) -> tuple[str, ...]:
        """The anchor, and the positive of a pair."""
        return (self.anchor,) if self.positive is None else (self.anchor, self.positive)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record that is not used: its place, the field at fault, and the reason."""

    where: str
    field: str
    reason: str
    label: str | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


class _BadFieldError(Exception):
    def __init__(self, field: str, reason: str, label: str | None = None) -> None:
        super().__init__(reason)
        self.field, self.reason, self.label = field, reason, label


def text_id(text: str) -> str:
    """The identity of a text: equal texts have equal ids."""
    return sha256_text(text)[:_ID_LENGTH]


def text_key(text: str) -> str:
    """Equal for texts that differ only in case, punctuation and white space, which may not be in two sets."""
    words = _NOT_WORDS.sub("", text.casefold())
    return sha256_text(words or text)[:_ID_LENGTH]


def thread(group: str) -> str:
    """A group without leading "Re:" and "Fwd:", in lower case, with single spaces: a subject's thread."""
    return " ".join(_REPLY.sub("", group).split()).casefold()


def usable_rows(records: Iterable[Record], source: Source, kind: Kind) -> tuple[list[Row], list[SetAside]]:
    """The rows of the records, and the records that are set aside."""
    columns = source.columns(kind)
    rows, bad = [], []
    for record in records:
        try:
            rows.append(_row(record, columns, source, kind))
        except _BadFieldError as error:
            bad.append(SetAside(record.where, error.field, error.reason, error.label))
    return rows, bad


def _row(record: Record, columns: dict[str, tuple[str, ...]], source: Source, kind: Kind) -> Row:
    values = record.values
    if isinstance(values, BadRowError):
        raise _BadFieldError("", str(values))
    label = None
    if kind.labelled:
        label = _label(values.get(columns["label"][0]), columns["label"][0], source.several)
    texts: dict[str, str] = {}
    for role in ("anchor", "positive", "negative", "text"):
        if role in columns:
            text = " ".join(part for name in columns[role] if (part := _text(values.get(name), name)))
            if not text and role != "negative":
                raise _BadFieldError("+".join(columns[role]), "empty text", label)
            texts[role] = text
    anchor = texts["text" if kind.labelled else "anchor"]
    if texts.get("positive") == anchor and "score" not in columns:
        raise _BadFieldError("+".join(columns["positive"]), "the same text as the anchor")
    score = _score(values.get(columns["score"][0]), columns["score"][0], kind) if "score" in columns else None
    group = thread(_text(values.get(source.group), source.group)) if source.group else values.get(PAPER_ID)
    negative = texts.get("negative") or None
    return Row(anchor, texts.get("positive"), negative, label, score, group or None, record.split)


def _text(value: Any, column: str) -> str:
    try:
        return (as_text(value) or "").strip()
    except BadRowError as error:
        raise _BadFieldError(column, str(error)) from error


def _label(value: Any, column: str, several: str) -> str:
    if isinstance(value, list):
        if len(value) > 1 and several == "drop":
            raise _BadFieldError(column, "several labels")
        value = value[0] if value else None
    label = _text(value, column)
    if not label:
        raise _BadFieldError(column, "no label")
    return label


def _score(value: Any, column: str, kind: Kind) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise _BadFieldError(column, f"no number: {str(value)[:40]!r}")
    if kind.binary and score not in (0, 1):
        raise _BadFieldError(column, f"a score of kind {kind.name} is 0 or 1, not {score:g}")
    return score

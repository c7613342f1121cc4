"""The rows of a dataset: texts, a label or a score, a group; records that give none are set aside."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args
from unicodedata import category, normalize

import pyarrow as pa
import pyarrow.parquet as pq

from sentence_experts.cells import NO_VALUES, BadRowError, as_text, holds_list_of_texts, parse_list
from sentence_experts.corpus.corpus_folder import PAPERS_SCHEMA, CorpusFolder
from sentence_experts.errors import InputError, require
from sentence_experts.pairs.config import OTHER_NAMES
from sentence_experts.pairs.pair_tables import is_no_and_yes, number_no_and_yes, read_split
from sentence_experts.pairs.table_folder import parquet_hash
from sentence_experts.storage import sha256_file, sha256_text
from sentence_experts.table_files import Row as Values
from sentence_experts.tables import check_columns, class_names, read_columns, read_rows, to_arrow
from sentence_experts.tasks.task_file import Kind, Source, Split

# A corpus holds lists of these; a label is one of them.
CORPUS_ALIASES = {"subject": "subjects", "keyword": "keywords"}
PAPER_ID = "paper_id"
# "Re: Re^2: Fwd: subject" is of the thread "subject".
_REPLY = re.compile(r"^(?:\s*(?:re|fwd?)\s*(?:\^\s*\d+|\[\s*\d+\s*\])?\s*:)+", re.IGNORECASE)
_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")
_ID_LENGTH = 16
UNLINKED, LINKED = "0", "1"  # labels of pairs

logger = logging.getLogger(__name__)

Record = tuple[str, str | None, Values | BadRowError]
"""The place of a record, its split if the source has splits, and column -> value."""


Opened = tuple[tuple[str, ...], Iterable[Record], dict[str, Any]]
"""The splits that a source has, its records, and its description for the manifest."""


class _Ignored(dict[int, int | None]):
    """For `str.translate`: punctuation and signs like it, white space and invisible characters."""

    def __missing__(self, code: int) -> int | None:
        kind = category(chr(code))
        self[code] = None if kind[0] in "PZ" or kind in ("Cc", "Cf", "Sk") or chr(code) in "©®™" else code
        return self[code]


_IGNORED = _Ignored()


class Row(NamedTuple):
    """A pair of texts, or one text with its label."""

    anchor: str  # the text, or the first text of a pair
    positive: str | None = None
    negative: str | None = None  # a text that is not an answer to the anchor
    label: str | None = None  # of a pair: `UNLINKED`, or None
    score: float | None = None  # the similarity of the texts of a pair
    group: str | None = None  # rows of one group stay in one split
    split: str | None = None  # the source's, if it has splits

    def texts(self) -> tuple[str, ...]:
        """Return the anchor, and the positive of a pair."""
        return (self.anchor,) if self.positive is None else (self.anchor, self.positive)


class UnusableError(Exception):
    """A record cannot be used: the field at fault, and the reason."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field, self.reason = field, reason


class Reading(NamedTuple):
    """The splits that a source has, its rows, the unusable records by place, and its description."""

    splits: tuple[str, ...]
    rows: list[Row]
    bad: list[tuple[str, UnusableError]]
    described: dict[str, Any]


# ---- reading a source ----------------------------------------------------------------------------


def read(source: Source, kind: Kind, folder: Path) -> Reading:
    """Read a source whose paths are relative to `folder`.

    Papers of a corpus that were retracted are unusable records.

    Raises:
        InputError: a file, corpus or hub dataset that is not there or lacks a column.
    """
    names = [name for own in source.columns(kind).values() for name in own]
    wanted = list(dict.fromkeys([*names, *([source.group] if source.group else [])]))
    scores = () if kind.labelled else (source.score or "score", source.label or "label")
    if source.corpus is not None:
        opened = _open_corpus(resolve_path(source.corpus, folder), wanted)
    elif source.hub is not None:
        opened = _open_hub(source, kind, wanted, folder, scores)
    elif source.table is not None:
        opened = _open_table(source.table, kind, wanted, scores)
    else:
        opened = _open_files(source, kind, wanted, folder, scores)
    splits, given, described = opened
    records = list(given)
    columns = _find_columns(records, source, kind)
    reading = Reading(splits, [], [], described)
    unlinked: list[tuple[str, Row]] = []
    for record in _expand_negatives(records, columns):
        try:
            row = _make_row(record, source, kind, columns)
        except UnusableError as error:
            reading.bad.append((record[0], error))
        else:
            if row.label == UNLINKED and not kind.labelled:
                unlinked.append((record[0], row))
            else:
                reading.rows.append(row)
    return _add_unlinked(reading, unlinked)


def _find_columns(records: list[Record], source: Source, kind: Kind) -> dict[str, tuple[str, ...]]:
    """Return role -> the columns it is in; a `label` of pairs that was not named must say what is linked."""
    rows = [row for *_, row in records if not isinstance(row, BadRowError)]
    columns = source.columns(kind, list(dict.fromkeys(name for row in rows for name in row)))
    if "label" in columns and not kind.labelled and source.label is None:
        name = columns["label"][0]
        if {_read_link(row.get(name)) for row in rows} - {"", UNLINKED, LINKED}:
            logger.info(f"not read: the column {name}; a label of pairs is 1 (linked) or 0")
            del columns["label"]
    return columns


def _expand_negatives(records: list[Record], columns: dict[str, tuple[str, ...]]) -> Iterator[Record]:
    """Yield a record for each negative of a record that has a list of them."""
    name = next(iter(columns.get("negative", ())), "")
    for place, split, row in records:
        value = None if isinstance(row, BadRowError) else row.get(name)
        listed = parse_list(value) if isinstance(value, str) and holds_list_of_texts(value) else value
        if isinstance(listed, list) and not isinstance(row, BadRowError):
            for each in listed or [None]:
                yield place, split, {**row, name: each}
        else:
            yield place, split, row


def _add_unlinked(reading: Reading, unlinked: list[tuple[str, Row]]) -> Reading:
    """Add the unlinked texts of anchors as negatives, beside the first text that is linked with each."""
    places: dict[tuple[str | None, str], int] = {}
    linked = set()
    for at, row in enumerate(reading.rows if unlinked else ()):
        anchor = (row.split, text_key(row.anchor))
        places.setdefault(anchor, at)
        linked.add((*anchor, text_key(row.positive or "")))
    for place, row in unlinked:
        anchor = (row.split, text_key(row.anchor))
        number = places.get(anchor, -1)
        if number < 0:
            reason = "0 (not linked), and no row links a text with its anchor"
            reading.bad.append((place, UnusableError("label", reason)))
        elif (*anchor, text_key(row.positive or "")) in linked:
            reading.bad.append(
                (place, UnusableError("label", "0 (not linked), and another row links the texts"))
            )
        elif reading.rows[number].negative is None:
            reading.rows[number] = reading.rows[number]._replace(negative=row.positive)
        else:
            reading.rows.append(reading.rows[number]._replace(negative=row.positive))
    return reading


def resolve_path(written: str, folder: Path) -> Path:
    """Return a path of a task file in `folder`, with ${VAR} replaced; InputError if it is not set."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise InputError(f"{written}: the environment variable {match[1]} is not set")
        return os.environ[match[1]]

    return folder / Path(re.sub(r"\$\{(\w+)\}", value, written)).expanduser()


def _number_rows(where: str, rows: Iterable[Values | BadRowError], split: str | None) -> Iterator[Record]:
    for number, row in enumerate(rows, start=1):
        yield f"{where}row {number}", split, row


def _read_file(path: Path, scores: Sequence[str]) -> Iterable[Values | BadRowError]:
    """Read the rows of a file; scores that are classes of the datasets library are as in a Dataset."""
    known = {name: each for name, each in class_names(path).items() if name in scores and is_no_and_yes(each)}
    for row in read_rows(path):
        if isinstance(row, dict):
            row = row | {name: each.index(row[name]) for name, each in known.items() if row[name] in each}
        yield row


def _open_files(source: Source, kind: Kind, wanted: list[str], folder: Path, scores: Sequence[str]) -> Opened:
    given = {None: source.file} if source.file else source.files or {}
    paths = {split: resolve_path(written, folder) for split, written in given.items()}
    for path in paths.values():
        check_columns(str(path), wanted, read_columns(path))
    files = {split: {"name": path.name, "sha256": sha256_file(path)} for split, path in paths.items()}
    parts = (_number_rows(f"{path.name} ", _read_file(path, scores), split) for split, path in paths.items())
    records = (record for part in parts for record in part)
    if None in paths:
        others = _find_others(str(paths[None]), read_columns(paths[None]), wanted, kind)
        return _read_splits(str(paths[None]), others, records, {"file": files[None]})
    for path in paths.values():
        _find_others(str(path), read_columns(path), wanted, kind)
    return tuple(map(str, paths)), records, {"files": files}


def _find_others(where: str, columns: Iterable[str], wanted: Sequence[str], kind: Kind) -> list[str]:
    """Return the columns beside the wanted ones; log those that are not read."""
    others = [name for name in columns if name not in wanted]
    if unread := [name for name in others if name.strip().lower() not in (*kind.optional, "split")]:
        listed = ", ".join(unread[:20]) + " ..." * (len(unread) > 20)
        logger.info(f"{where}: not read: the column{'s' * (len(unread) > 1)} {listed}")
    return others


def _read_splits(
    where: str, columns: Sequence[str], records: Iterable[Record], described: dict[str, Any]
) -> Opened:
    """Return a table, with the splits that one of its other `columns` gives its records, if it is `split`."""
    named = [name for name in columns if name.strip().lower() == "split"]
    if not named:
        return (), records, described
    split = "split" if "split" in named else named[0]
    divided = []
    for place, _, row in records:
        cells = {} if isinstance(row, BadRowError) else row
        # Spreadsheets end in empty rows.
        divided.append((place, read_split(cells.get(split), where) if any(cells.values()) else None, row))
    given = {each for _, each, _ in divided}
    splits = tuple(name for name in get_args(Split) if name in given)
    return splits, divided, {**described, "splits": splits}


def _open_corpus(path: Path, wanted: list[str]) -> Opened:
    corpus = CorpusFolder.open(path)
    check_columns(str(corpus.path), wanted, sorted({*PAPERS_SCHEMA.names, *CORPUS_ALIASES}))

    def records() -> Iterator[Record]:
        with pq.ParquetFile(corpus.papers) as file:
            for paper in (paper for batch in file.iter_batches() for paper in batch.to_pylist()):
                values = paper | {alias: paper[column] for alias, column in CORPUS_ALIASES.items()}
                if paper["retracted"]:
                    values = BadRowError("the paper was retracted")
                yield f"{corpus.path.name} {paper[PAPER_ID]}", None, values

    return (), records(), {"corpus": {"fingerprint": corpus.fingerprint()}}


def _open_hub(source: Source, kind: Kind, wanted: list[str], folder: Path, scores: Sequence[str]) -> Opened:
    require("datasets", "models")
    from sentence_experts.compat.datasets import dataset_fingerprint, load_splits

    hub = str(source.hub)
    local = resolve_path(hub, folder)
    loaded = load_splits(str(local) if local.is_dir() else hub, source.config)
    named = {str(split): name for split, name in (source.splits or {}).items()}
    usual = {OTHER_NAMES.get(name, name): name for name in loaded} | {name: name for name in loaded}
    splits = named or {name: usual[name] for name in get_args(Split) if name in usual}
    unknown = [name for name in splits.values() if name not in loaded]
    if unknown or not splits:
        what = f"no split {unknown[0]!r}" if unknown else "no split of a usual name"
        raise InputError(f"{hub} has {what}; it has {', '.join(loaded)}: name splits: {{train: ...}}")
    for name in splits.values():
        check_columns(f"{hub}, split {name},", wanted, loaded[name].column_names)
    # A dataset with nothing but "train" has not been split yet.
    is_whole = set(splits) == {"train"} and not named
    # Other columns may be pictures or sounds.
    read = {
        name: table.select_columns(
            [
                name
                for name in table.column_names
                if name in (*wanted, PAPER_ID) or name.strip().lower() in kind.optional
            ]
        )
        for name, table in loaded.items()
    }
    records = (
        record
        for split, name in splits.items()
        for record in _number_rows(
            f"{hub} {name} ",
            _list_rows(to_arrow(read[name]), read[name], scores),
            None if is_whole else split,
        )
    )
    fingerprints = {split: dataset_fingerprint(loaded[name]) for split, name in splits.items()}
    described = {"hub": hub, "config": source.config, "fingerprints": fingerprints}
    return () if is_whole else tuple(splits), records, described


def _list_rows(table: pa.Table, source: Any, scores: Sequence[str]) -> Iterator[Values]:
    """Yield the rows of a table, read from a source; `scores` whose classes say no and yes are numbers."""
    known = [name for name in scores if name in table.column_names]
    for batch in number_no_and_yes(table, source, known).to_batches():
        yield from batch.to_pylist()


def _open_table(given: Any, kind: Kind, wanted: list[str], scores: Sequence[str]) -> Opened:
    table = to_arrow(given)
    check_columns("the table", wanted, table.column_names)
    records = _number_rows("", _list_rows(table, given, scores), None)
    described = {"rows": table.num_rows, "sha256": parquet_hash(table)}
    others = _find_others("the table", table.column_names, wanted, kind)
    return _read_splits("the table", others, records, {"table": described})


# ---- from records to rows ------------------------------------------------------------------------


def text_id(text: str) -> str:
    """Return the identity of a text: equal texts have equal ids."""
    return sha256_text(text)[:_ID_LENGTH]


def text_key(text: str) -> str:
    """Return a key that texts share that differ only in case, punctuation, white space and Unicode form.

    Such texts may not be in two sets.
    """
    words = normalize("NFC", text).casefold().translate(_IGNORED)
    return sha256_text(words or text)[:_ID_LENGTH]


def thread(group: str) -> str:
    """Return a group without leading "Re:" and "Fwd:", in lower case: a subject's thread."""
    return " ".join(_REPLY.sub("", group).split()).casefold()


def _make_row(record: Record, source: Source, kind: Kind, columns: dict[str, tuple[str, ...]]) -> Row:
    """Return the row of a record; UnusableError if it gives none."""
    _, split, values = record
    if isinstance(values, BadRowError):
        raise UnusableError("", str(values))
    label = None
    if "label" in columns:
        name = columns["label"][0]
        label = _label(values.get(name), name) if kind.labelled else _check_link(values.get(name), name)
    texts: dict[str, str] = {}
    for role in ("anchor", "positive", "negative", "text"):
        if role in columns:
            cells = [_read_text(values.get(name), name) for name in columns[role]]
            text = " ".join(cell for cell in cells if cell and (role != "negative" or cell not in NO_VALUES))
            if not text and role != "negative":
                raise UnusableError("+".join(columns[role]), "empty text")
            texts[role] = text
    anchor, positive = texts["text" if kind.labelled else "anchor"], texts.get("positive")
    scored = "score" in columns
    if positive == anchor and not scored:
        raise UnusableError("+".join(columns["positive"]), "the same text as the anchor")
    score = _score(values.get(columns["score"][0]), columns["score"][0], kind) if scored else None
    own = source.group
    group = thread(_check_text(values.get(own), own)) if own else values.get(PAPER_ID)
    if own and values.get(own) in NO_VALUES:
        group = None
    group = _WHOLE.sub(r"\1", group) if group else None  # numbers beside empty cells are written with ".0"
    return Row(anchor, positive, texts.get("negative") or None, label, score, group, split)


def _check_text(value: Any, column: str) -> str:
    try:
        return (as_text(value) or "").strip()
    except BadRowError as error:
        raise UnusableError(column, str(error)) from error


def _read_text(value: Any, column: str) -> str:
    text = _check_text(value, column)
    if holds_list_of_texts(text):
        raise UnusableError(column, f"a list of texts, not a text ({text[:40]}): give each a row")
    return text


def _read_link(value: Any) -> str:
    """Return the label of a pair as text: 0, 1, "" if it is missing, or what else it says."""
    missing = value is None or value != value or value in NO_VALUES
    text = "" if missing else str(value).strip().lower()
    return {"true": LINKED, "false": UNLINKED}.get(text, _WHOLE.sub(r"\1", text))


def _check_link(value: Any, column: str) -> str | None:
    """Return `UNLINKED`, or None if the label says that the texts of a pair are linked."""
    link = _read_link(value)
    if link not in (UNLINKED, LINKED):
        reason = f"a label of a pair is 1 (linked) or 0, not {link[:40]!r}" if link else "no label"
        raise UnusableError(column, reason)
    return UNLINKED if link == UNLINKED else None


def _label(value: Any, column: str) -> str:
    """Return a label; a list (a paper's subjects) must hold one.

    A whole number is written without its point: as text, 1.0 of a column with missing labels is 1 elsewhere.
    """
    listed = parse_list(value) if isinstance(value, str) else value
    values = listed if isinstance(listed, list) else [value]
    if len(values) > 1:
        raise UnusableError(column, "several labels")
    label = _check_text(values[0] if values else None, column)
    if not label or label in NO_VALUES:
        raise UnusableError(column, "no label")
    return _WHOLE.sub(r"\1", label)


def _score(value: Any, column: str, kind: Kind) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise UnusableError(column, f"no number: {str(value)[:40]!r}")
    if kind.binary and score not in (0, 1):
        raise UnusableError(column, f"a score of kind {kind.name} is 0 or 1, not {score:g}")
    return score

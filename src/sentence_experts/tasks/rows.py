"""The rows of a dataset: texts, a label or a score, a group; records that give none are set aside."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import category, normalize

from sentence_experts.cells import (
    NO_VALUES,
    BadRowError,
    as_link,
    as_text,
    holds_list_of_texts,
    parse_list,
    strip_text,
)
from sentence_experts.errors import InputError
from sentence_experts.pairs.pair_tables import is_no_and_yes
from sentence_experts.storage import sha256_text
from sentence_experts.table_files import Row as Values
from sentence_experts.tasks.sources import PAPER_ID, Record, read_records
from sentence_experts.tasks.task_file import Kind, Source

# "Re: Re^2: Fwd: subject" is of the thread "subject".
_REPLY = re.compile(r"^(?:\s*(?:re|fwd?)\s*(?:\^\s*\d+|\[\s*\d+\s*\])?\s*:)+", re.IGNORECASE)
_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")
_ID_LENGTH = 16

logger = logging.getLogger(__name__)


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
    label: str | None = None
    score: float | None = None  # the similarity of the texts of a pair
    is_linked: bool = True  # whether the positive is one
    group: str | None = None  # rows of one group stay in one split
    negative_group: str | None = None  # of a negative that was a row
    negative_is_row: bool = False
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

    Papers of a corpus that were retracted, and notices, are unusable records (`read_records`).

    Raises:
        InputError: a file, corpus or hub dataset that is not there or lacks a column.
    """
    splits, columns, records, described = read_records(source, kind, folder)
    found = {role for role in columns if role in kind.optional and getattr(source, role) is None}
    for role in sorted(found):
        if not _holds(role, columns[role][0], records):
            found.remove(role)
            del columns[role]
    if found:
        described = {**described, "found": {role: columns[role][0] for role in sorted(found)}}
    reading = Reading(splits, [], [], described)
    unlinked: list[tuple[str, Row]] = []
    for record in records:
        try:
            row, negatives = _make_row(record, source, kind, columns)
        except UnusableError as error:
            reading.bad.append((record.place, error))
            continue
        if row.is_linked:
            reading.rows.extend([row._replace(negative=each) for each in negatives] or [row])
        else:
            unlinked += [(record.place, row._replace(positive=each)) for each in [row.positive, *negatives]]
    return _without_linked_negatives(_add_unlinked(reading, unlinked))


def _without_linked_negatives(reading: Reading) -> Reading:
    """Leave out the negatives of rows that another row links with their anchor."""
    if not any(row.negative for row in reading.rows):
        return reading
    linked = {(row.split, text_key(row.anchor), text_key(row.positive or "")) for row in reading.rows}
    kept, emptied = list[Row](), list[Row]()
    for row in reading.rows:
        is_linked = row.negative and (row.split, text_key(row.anchor), text_key(row.negative)) in linked
        (emptied if is_linked else kept).append(row)
    if emptied:
        logger.warning(f"{len(emptied):,} negatives are left out, as rows link them with their anchor")
        there = {(row.split, row.texts()) for row in kept}
        for row in emptied:  # its pair stays, once
            if (row.split, row.texts()) not in there:
                there.add((row.split, row.texts()))
                kept.append(row._replace(negative=None, negative_group=None, negative_is_row=False))
        reading.rows[:] = kept
    return reading


def _holds(role: str, name: str, records: list[Record]) -> bool:
    """Return whether a column that was not named holds what its name says; log it if not.

    Raises:
        InputError: some of its values are labels of pairs.
    """
    cells = [record.values.get(name) for record in records if not isinstance(record.values, BadRowError)]
    lacking = sum(name not in record.values for record in records if isinstance(record.values, dict))
    reason = ""
    if role == "label":
        links = set()
        for cell in cells:
            try:
                links.add(as_link(cell))
            except BadRowError as error:
                reason = reason or str(error)
        if reason and {0, 1} <= links:
            raise InputError(
                f"{reason}, and the column {name} holds 0 and 1 too: name it (`label: {name}`), so that "
                'other rows are set aside, or give `label: ""`, so that it is not read'
            )
        if reason and _says_no_and_yes(cells):
            raise InputError(
                f"{reason}. If the column {name} says which texts are linked, write 0 and 1; otherwise set "
                '`label: ""` to ignore it'
            )
        if not links - {None}:
            reason = reason or "it is empty"
        if lacking and not reason:
            logger.warning(f"{lacking:,} rows count as linked, as their table has no column {name}")
    elif not any(map(_is_text, cells)):
        reason = "it holds no texts"
    if reason:
        told = {"" if cell is None else str(cell).strip() for cell in cells} - {"", *NO_VALUES}
        log = logger.warning if told or role == "label" else logger.info
        log(f"not read: the column {name}; {reason}")
    return not reason


def _says_no_and_yes(cells: list[Any]) -> bool:
    """Return whether a column has two values that say no and yes."""
    values = sorted(
        {str(cell).strip().removesuffix(".0").removeprefix("+") for cell in cells if cell is not None}
        - {"", *NO_VALUES}
    )
    is_code = values in (["1", "2"], ["0", "2"], ["-1", "1"], ["-1", "0"])
    return is_code or is_no_and_yes(values) or is_no_and_yes(values[::-1])


def _is_text(cell: Any) -> bool:
    """Return whether a cell is a text, and no number, or a list."""
    if not isinstance(cell, str) or not strip_text(cell):
        return isinstance(cell, list)
    try:
        float(cell)
    except ValueError:
        return True
    return False


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
        reason = "another row links the texts" if (*anchor, text_key(row.positive or "")) in linked else ""
        if number < 0:
            reason = "no row links a text with its anchor"
        if reason:
            reading.bad.append((place, UnusableError("label", f"0 (not linked), and {reason}")))
            continue
        add_negative(reading.rows, number, row.positive, row.group)
    return reading


def add_negative(rows: list[Row], number: int, negative: str | None, group: str | None) -> None:
    """Give a row a negative that was a row too: beside its pair, if that has one already."""
    added = rows[number]._replace(negative=negative, negative_group=group, negative_is_row=True)
    if rows[number].negative is None:
        rows[number] = added
    else:
        rows.append(added)


def warn_of_scores(rows: Sequence[Row], where: str) -> None:
    """Warn of pairs of texts that have several scores."""
    scores: dict[tuple[str, ...], float | None] = {}
    several = dict.fromkeys(
        texts for row in rows if scores.setdefault(texts := row.texts(), row.score) != row.score
    )
    if several:
        logger.warning(
            f"{where}: pairs of texts with several scores ({len(several):,}), such as "
            f"{next(iter(several))[0][:60]!r}: each row counts; keep one of them"
        )


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


def _make_row(
    record: Record, source: Source, kind: Kind, columns: dict[str, tuple[str, ...]]
) -> tuple[Row, list[str]]:
    """Return the row of a record, and its negatives; UnusableError if it gives none."""
    values = record.values
    if isinstance(values, BadRowError):
        raise UnusableError("", str(values))
    label, is_linked = None, True
    if "label" in columns:
        [name] = columns["label"]
        if kind.labelled:
            label = _label(values.get(name), name)
        elif name in values:  # where a table lacks the column, all of its rows are linked
            is_linked = _read_link(values[name], name) == 1
    texts: dict[str, str] = {}
    for role in ("anchor", "positive", "text"):
        if role in columns:
            texts[role] = " ".join(filter(None, (_read_text(values[name], name) for name in columns[role])))
            if not texts[role]:
                raise UnusableError("+".join(columns[role]), "empty text")
    anchor, positive = texts["text" if kind.labelled else "anchor"], texts.get("positive")
    scored = "score" in columns
    if positive == anchor and not scored:
        raise UnusableError("+".join(columns["positive"]), "the same text as the anchor")
    score = _score(values.get(columns["score"][0]), columns["score"][0], kind) if scored else None
    own = source.group or (PAPER_ID if source.corpus else "")
    group = _check_text(values.get(own), own)
    group = thread(group) if source.group else group
    group = _WHOLE.sub(r"\1", group)  # numbers beside empty cells are written with ".0"
    row = Row(anchor, positive, None, label, score, is_linked, group or None, split=record.split)
    return row, _read_negatives(values, columns.get("negative", ()))


def _read_negatives(values: Values, names: Sequence[str]) -> list[str]:
    """Return the negatives of a record: a list's in one column, or the texts of the columns, joined."""
    cells = [values.get(name) for name in names]
    if len(cells) == 1:
        [cell] = cells
        listed = parse_list(cell) if isinstance(cell, str) and holds_list_of_texts(cell) else cell
        if isinstance(listed, list):
            given = [_check_text(each, names[0]) for each in listed]
            return [text for text in dict.fromkeys(given) if text]
    texts = [_read_text(cell, name) for cell, name in zip(cells, names, strict=True)]
    joined = " ".join(filter(None, texts))
    return [joined] if joined else []


def _check_text(value: Any, column: str) -> str:
    try:
        return strip_text(as_text(value) or "")
    except BadRowError as error:
        raise UnusableError(column, str(error)) from error


def _read_text(value: Any, column: str) -> str:
    text = _check_text(value, column)
    if holds_list_of_texts(text):
        raise UnusableError(column, f"a list of texts, not a text ({text[:40]}): give each a row")
    return text


def _read_link(value: Any, column: str) -> int:
    """Return the label of a pair."""
    try:
        link = as_link(value)
    except BadRowError as error:
        raise UnusableError(column, str(error)) from error
    if link is None:
        raise UnusableError(column, "no label")
    return link


def _label(value: Any, column: str) -> str:
    """Return a label; a list (a paper's subjects) must hold one.

    A whole number is written without its point: as text, 1.0 of a column with missing labels is 1 elsewhere.
    """
    listed = parse_list(value) if isinstance(value, str) else value
    values = listed if isinstance(listed, list) else [value]
    if len(values) > 1:
        raise UnusableError(column, "several labels")
    label = _check_text(values[0] if values else None, column)
    if not label:
        raise UnusableError(column, "no label")
    return _WHOLE.sub(r"\1", label)


def _score(value: Any, column: str, kind: Kind) -> float:
    if kind.binary:
        return _read_link(value, column)
    try:
        score = math.nan if "_" in str(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise UnusableError(column, f"no number: {str(value)[:40]!r}")
    return score

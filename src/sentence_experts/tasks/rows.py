"""Turn records into rows: texts, a label or a score, a group; name the reason if that is impossible."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sentence_experts.storage import sha256_text
from sentence_experts.tables import BadRowError, as_text
from sentence_experts.tasks.kinds import Kind
from sentence_experts.tasks.reading import PAPER_ID, Record
from sentence_experts.tasks.source import Source

# "Re: Re^2: Fwd: subject" is of the thread "subject".
_REPLY = re.compile(r"^(?:\s*(?:re|fwd?)\s*(?:\^\s*\d+|\[\s*\d+\s*\])?\s*:)+", re.IGNORECASE)
_NOT_WORDS = re.compile(r"[\W_]+")
_ID_LENGTH = 16


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
    if values is None:
        raise _BadFieldError("", record.problem)
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

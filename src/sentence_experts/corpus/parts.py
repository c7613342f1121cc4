"""The output of parsing: papers and references as their documents state them, in resumable parts.

A part holds some consecutive documents of a source, in several files: papers, references, their mentions in
the text, full texts where they are kept, and rejections. The column `content` of papers is a hash of all that
a record states. The papers are written last, so a part whose papers are there is whole, and an interrupted
run need not parse it again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_experts.corpus.corpus_folder import BODIES_SCHEMA, MENTIONS_SCHEMA, PAPERS_SCHEMA
from sentence_experts.corpus.formats.authors import clean_authors
from sentence_experts.corpus.formats.markup import CONTROLS, unique, without_controls
from sentence_experts.corpus.paper import (
    Citation,
    Deletion,
    Paper,
    Rejection,
    clean_abstract,
    is_retracted,
    kind_of,
)
from sentence_experts.storage import PartStore, read_json, write_json, write_text

Item = TypeVar("Item")

_IDS = [
    ("doi", pa.string()), ("pmid", pa.string()), ("pmcid", pa.string()), ("other", pa.string()),
    ("openalex", pa.int64()),
]  # fmt: skip
_PLACE = [("source", pa.int32()), ("part", pa.int32()), ("record", pa.int32())]

_STATED = [field for field in PAPERS_SCHEMA if field.name not in ("kind", "has_body")][5:]

STATED_PAPERS = pa.schema([
    *_PLACE, ("member", pa.string()), *_IDS, *_STATED, ("kind", pa.string()), ("references", pa.int32()),
    ("version", pa.int32()), ("deleted", pa.bool_()), ("has_body", pa.bool_()), ("content", pa.binary(16)),
    ("revised", pa.int32()),
])  # fmt: skip
STATED_REFERENCES = pa.schema([
    *_PLACE, ("position", pa.int32()), *_IDS, ("title", pa.string()), ("year", pa.int32()),
    ("retracts", pa.bool_()), ("citing", pa.string()), ("citing_key", pa.string()),
])  # fmt: skip
STATED_MENTIONS = pa.schema([*_PLACE, ("reference", pa.int32()), *list(MENTIONS_SCHEMA)[2:]])
STATED_BODIES = pa.schema([*_PLACE, ("position", pa.int32()), *list(BODIES_SCHEMA)[1:]])
# Columns with few distinct values.
_REPEATED = ["section_title", "section_kind", "topic", "subfield", "field", "journal", "licence", "kind"]
COMPLETING = "completing"
"""The kind of sources whose records only fill in what records of other sources lack."""
PAPERS = ".papers.parquet"
REFERENCES = ".references.parquet"
MENTIONS = ".mentions.parquet"
BODIES = ".bodies.parquet"
REJECTED = ".rejected.jsonl"
STATED = {
    PAPERS: STATED_PAPERS, REFERENCES: STATED_REFERENCES, MENTIONS: STATED_MENTIONS, BODIES: STATED_BODIES,
}  # fmt: skip
"""The endings of a part's tables -> their columns."""

# Words that programs write where there is no value.
_NO_VALUES = frozenset({"none", "other", "n/a", "na", "null", "no-specified", "no pagination"})
_PAPER_FIELDS = attrgetter(*STATED_PAPERS.names[4:-7])
_CITATION_FIELDS = attrgetter(*(name for name, _ in _IDS), "title", "year")


def open_parts(folder: Path, **settings: Any) -> PartStore:
    """Return the parts in a folder, if they were made with the same settings; else an empty folder."""
    settings["columns"] = STATED_PAPERS.names  # an earlier version had fewer
    return PartStore.open(folder, settings, PAPERS, (REFERENCES, MENTIONS, BODIES, REJECTED))


def split_into_groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items, `size` at a time; at least one group, which may be empty."""
    iterator = iter(items)
    yield list(itertools.islice(iterator, size))
    while group := list(itertools.islice(iterator, size)):
        yield group


def find_missing_groups(
    parts: PartStore, source: int, items: Iterable[Item], size: int
) -> Iterator[tuple[int, list[Item]]]:
    """Yield the items in groups, each with its number, except those whose part is there."""
    groups = enumerate(split_into_groups(items, size))
    return ((number, group) for number, group in groups if not parts.is_done(part_key(source, number)))


def part_key(source: int, number: int) -> str:
    """Return the key of part `number` of a source."""
    return f"{source:04d}-{number:06d}"


def mark_done(source: int, parts: PartStore, ignored: int, count: int, rejections: list[Rejection]) -> None:
    """Note that all `count` parts of a source are there, and what could not be read of it."""
    done, key = _open_done_sources(parts), f"{source:04d}"
    write_rejections(done.path(key, REJECTED), rejections)
    with done.writing(key) as temporary:
        write_json(temporary, {"ignored": ignored, "parts": count})


def count_ignored_if_done(source: int, parts: PartStore) -> int | None:
    """Return the number of a source's members that are no documents, if all its parts are there and whole."""
    done, key = _open_done_sources(parts), f"{source:04d}"
    if not done.is_done(key):
        return None
    noted = read_json(done.path(key))
    whole = all(parts.is_done(part_key(source, number)) for number in range(noted["parts"]))
    return int(noted["ignored"]) if whole else None


def _open_done_sources(parts: PartStore) -> PartStore:
    return replace(parts, suffix=".done.json", others=(REJECTED,))


def _clean_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Split subjects or keywords that ";" joins; leave out "None", "other" and the like."""
    parts = (part.strip() for label in labels for part in label.split(";"))
    return unique(part for part in parts if part.lower() not in _NO_VALUES)


def _clean_place(text: str | None) -> str | None:
    """Return a volume, issue or range of pages, with one hyphen for whatever dash the record has."""
    text = _DASHES.sub("-", text or "").strip()
    first, _, last = text.partition("-")
    text = first if first == last else text
    text = text[:-2] if _WHOLE.fullmatch(text) else text
    return None if text.lower() in _NO_VALUES else text or None


_WHOLE = re.compile(r"\d+\.0")  # as pandas writes the numbers of a column with empty cells
_DASHES = re.compile(r"\s*[-‐‑–—−]+\s*")
_CLEANERS_OF: dict[str, Callable[[Any], Any]] = {
    "abstract": clean_abstract, "authors": clean_authors,
    "subjects": _clean_labels, "keywords": _clean_labels, "organisms": _clean_labels,
    "volume": _clean_place, "issue": _clean_place, "pages": _clean_place,
}  # fmt: skip
_CLEANED = [(STATED_PAPERS.names[4:].index(name), clean) for name, clean in _CLEANERS_OF.items()]
_RETRACTED = STATED_PAPERS.names[4:].index("retracted")


class CorpusPart:
    """The papers, references and rejections of some documents, collected to be written."""

    def __init__(self, source: int, number: int) -> None:
        self._key = (source, number)
        self._papers: list[tuple[Any, ...]] = []
        self._references: list[tuple[Any, ...]] = []
        self._mentions: list[tuple[Any, ...]] = []
        self._bodies: list[tuple[Any, ...]] = []
        # References known by number alone, ten times as many as papers: record, first position, numbers.
        self._numbers: list[tuple[int, int, Sequence[int]]] = []
        self.rejections: list[Rejection] = []

    def add(self, paper: Paper, member: str | None, deleted: bool = False) -> None:
        """Add a paper and its references; `member` names the document it came from."""
        record = len(self._papers)
        references = len(paper.citations) + len(paper.cites_openalex)
        values = list(_PAPER_FIELDS(paper))
        for place, clean in _CLEANED:
            values[place] = clean(values[place])
        values[_RETRACTED] = is_retracted(paper)
        values += (kind_of(paper), references, paper.version, deleted, paper.has_body)
        cited = [
            (position, *_CITATION_FIELDS(citation), retracts)
            for retracts, citations in ((False, paper.citations), (True, paper.retracts))
            for position, citation in enumerate(citations)
        ]
        more = map(list, (paper.cites_openalex, paper.mentions, paper.body))
        content = hashlib.blake2b(repr([values, cited, *more]).encode("utf-8", "replace"), digest_size=16)
        self._papers.append((*self._key, record, member, *values, content.digest(), paper.revised))
        self._references += [(*self._key, record, *reference, None, None) for reference in cited]
        if paper.cites_openalex:
            self._numbers.append((record, len(paper.citations), paper.cites_openalex))
        self._mentions += [(*self._key, record, *mention) for mention in paper.mentions]
        self._bodies += [(*self._key, record, place, *each) for place, each in enumerate(paper.body)]

    def delete(self, deletion: Deletion, member: str | None) -> None:
        """Note, in its place among the papers, that an earlier record is deleted."""
        self.add(Paper(pmid=deletion.pmid, version=deletion.version), member, deleted=True)

    def add_citation(self, citing: str, citing_key: str | None, position: int, citation: Citation) -> None:
        """Add a citation from a table; its paper has the user's own name and, if known, a canonical id."""
        row = (*self._key, None, position, *_CITATION_FIELDS(citation), False, citing, citing_key)
        self._references.append(row)

    def write(self, parts: PartStore) -> int:
        """Write the files; returns the number of papers."""
        key = part_key(*self._key)
        if self.rejections:
            write_rejections(parts.path(key, REJECTED), self.rejections)
        _write(parts, key, REFERENCES, self._all_references())
        _write(parts, key, MENTIONS, make_table(self._mentions, STATED_MENTIONS))
        if self._bodies:
            _write(parts, key, BODIES, make_table(self._bodies, STATED_BODIES))
        _write(parts, key, None, make_table(self._papers, STATED_PAPERS))
        return len(self._papers)

    def _all_references(self) -> pa.Table:
        table = make_table(self._references, STATED_REFERENCES)
        if not self._numbers:
            return table
        records, first, numbers = zip(*self._numbers, strict=True)
        lengths = list(map(len, numbers))
        positions = [np.arange(begin, begin + length) for begin, length in zip(first, lengths, strict=True)]
        columns = {
            "source": np.full(sum(lengths), self._key[0], np.int32),
            "part": np.full(sum(lengths), self._key[1], np.int32),
            "record": np.repeat(np.array(records, np.int32), lengths),
            "position": np.concatenate(positions).astype(np.int32),
            "openalex": np.fromiter(itertools.chain.from_iterable(numbers), np.int64),
            "retracts": np.zeros(sum(lengths), bool),
        }
        return pa.concat_tables([table, pa.table(columns)], promote_options="default")


def make_table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Return a table from rows of values in the order of a schema's columns, without control characters."""
    arrays = []
    for place, field in enumerate(schema):
        values = [row[place] for row in rows]  # `zip(*rows)` takes three times as long
        array = pa.array(values, field.type)
        texts = array.flatten() if pa.types.is_list(field.type) else array
        if pa.types.is_string(texts.type) and pc.any(pc.match_substring_regex(texts, CONTROLS)).as_py():
            array = pa.array(list(map(_without_controls, values)), field.type)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def _without_controls(value: str | Sequence[str] | None) -> Any:
    if isinstance(value, str):
        return without_controls(value)
    return None if value is None else list(map(without_controls, value))


def _write(parts: PartStore, key: str, suffix: str | None, table: pa.Table) -> None:
    with parts.writing(key, suffix) as temporary:
        pq.write_table(table, temporary, compression="lz4", use_dictionary=_REPEATED)


def write_rejections(path: Path, rejections: Iterable[Rejection]) -> None:
    """Write one JSON object per line: source, member, record, reason, detail."""
    lines = []
    for rejection in rejections:
        values = {name: value for name, value in asdict(rejection).items() if (name, value) != ("records", 1)}
        lines.append(json.dumps(values, ensure_ascii=False, sort_keys=True) + "\n")
    write_text(path, "".join(lines))


def read_rejections(path: Path) -> list[Rejection]:
    """Return the rejections in one file."""
    with open(path, encoding="utf-8") as file:
        return [Rejection(**json.loads(line)) for line in file]

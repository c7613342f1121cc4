"""Papers and citations from the user's own tables.

Papers need the columns `id` (or `doi`, `pmid`, ...) and `title`; without `id`, papers that lack a DOI too are
known by a hash of their texts. Citations need `citing`, `cited`, whose values are ids of the papers or any
DOI, PMID, PMCID or `openalex:W...`. Lists (subjects, mesh, keywords) are Parquet lists, JSON arrays, or text
split at `;` or `|`. Names of columns may be in any case; `tags` are read as `keywords` where there are none.
"""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_experts.cells import NO_VALUES, BadRowError, as_identifier, as_text, parse_list
from sentence_experts.corpus.corpus_folder import LIST_COLUMNS, PAPERS_SCHEMA, TEXT_COLUMNS
from sentence_experts.corpus.formats.languages import read_language
from sentence_experts.corpus.formats.markup import clean, unescape, unique, without_tags
from sentence_experts.corpus.formats.references import SHOWN, year_in
from sentence_experts.corpus.identifiers import (
    NORMALISE,
    Identifiers,
    normalise_doi,
    normalise_openalex,
    parse_identifier,
)
from sentence_experts.corpus.paper import (
    Citation,
    Paper,
    Rejection,
    clean_abstract,
    is_misspelt_kind,
    is_type_of_retracted,
    kind_named,
    name_by_texts,
)
from sentence_experts.corpus.parts import CorpusPart, part_key, split_into_groups
from sentence_experts.corpus.record_files import RECORD_SUFFIXES, format_of
from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import PartStore
from sentence_experts.table_files import Row
from sentence_experts.table_files import format_of as table_format
from sentence_experts.tables import (
    Table,
    check_columns,
    fingerprint,
    fold_columns,
    is_path,
    list_unread,
    name_of_table,
    read_columns,
    read_rows,
)

_ROWS_PER_PART, _FULL_TEXTS_PER_PART = 20_000, 500  # a part is in memory
FULL_TEXT = "full_text"
# With a space in it, or a short one.
_ANY_DOI = re.compile(r"10\.\d{4,}/|^(?:https?://(?:dx\.)?doi\.org/|doi:\s*)?10/[a-z]", re.IGNORECASE)
_NORMALISE = {**NORMALISE, "openalex": normalise_openalex}
_OWN_IDS = ("id", "paper_id")
_NAMING = (*_OWN_IDS, "doi", "pmid", "pmcid", "openalex")
# Kind of table -> its required columns, and others.
_COLUMNS = {
    "papers": (
        ("id", "title"),
        (*(name for name in PAPERS_SCHEMA.names if name not in ("title", "has_body")), FULL_TEXT),
    ),
    "citations": (("citing", "cited"), ("cited_title", "cited_year")),
}
# What stands between ids in a cell, and what else than identifiers is an id there: "Smith, 2001" is one.
_BETWEEN_IDS = (
    (re.compile("[;|]"), re.compile(r"[\w.:-]{1,40}")),
    (re.compile(","), re.compile(r"(?=\D*\d)[\w.:-]{1,40}")),
    (re.compile(r"\s+"), None),
)
_NO_WORK = re.compile(r"\W*|none|unknown|missing|n\Wa\W?", re.IGNORECASE)
# "[No author name available]" is a text.
_BROKEN_ARRAY = re.compile(
    r"""\[\s*["'“‘{\[].*\]|\[[^][]*[;|][^][]*\]|\[.*\b10\.\d+/.*\]|c\(\s*["'].*\)""", re.DOTALL
)
# Lists as DuckDB and PostgreSQL write them; the latter quotes what has signs or white space.
_BRACKETS = re.compile(r"\[(?!No )[^][\"“”;|]*\]")
_BRACES = re.compile(r'\{(?:(?:"(?:[^"\\]|\\.)*"|[^\s,{}"\\;|]+)(?:,(?!\})|(?=\})))*\}')
_LONGEST_CELL = 32_767  # characters, of Excel
_TRUE = frozenset({"1", "1.0", "true", "yes", "t", "y", "retracted"})
_FALSE = frozenset({"", "0", "0.0", "false", "no", "f", "n", "none", "not retracted"})

logger = logging.getLogger(__name__)


def read_user_tables(papers: Sequence[Table], citations: Table | None = None) -> list[UserTable]:
    """Return the given tables of papers and of the citations between them, with their columns checked.

    Raises:
        InputError: a file is missing, of an unknown kind, or lacks a column.
        UsageError: citations without papers to cite from.
    """
    if citations is not None and not papers:
        raise UsageError("`citations` needs `papers`: the table of the papers that its ids name")
    tables = [UserTable(each, "papers", _check(each, "papers")) for each in papers]
    if citations is None:
        return tables
    # After the first table of papers, as sources are numbered.
    return [*tables[:1], UserTable(citations, "citations", _check(citations, "citations")), *tables[1:]]


def is_table_of_papers(path: Path) -> bool:
    """Return whether a file is a table with the columns that papers need, and not a known export."""
    if not path.is_file() or table_format(path) in (None, "lines"):
        return False
    known = format_of(path) if path.name.lower().endswith(RECORD_SUFFIXES) else "unknown"
    if known != "unknown":
        return False
    try:
        columns = {column.strip().lower() for column in read_columns(path)}
    except InputError:
        return False
    return "title" in columns and not columns.isdisjoint(_NAMING)


def count_broken_rows(path: Path) -> int:
    """Count the rows of a table that cannot be read, such as the last one of a file that is being written."""
    return sum(isinstance(row, BadRowError) for row in read_rows(path))


@dataclass(frozen=True, slots=True)
class UserTable:
    """A table as a source of a corpus (a `building.TableSource`).

    Attributes:
        table: the table.
        kind: `papers` or `citations`.
        names: column of the table -> the name that it is read by.
    """

    table: Table
    kind: str
    names: dict[str, str]

    @property
    def name(self) -> str:
        """The name of its file."""
        return Path(self.table).name if is_path(self.table) else self.kind

    def described(self) -> list[dict[str, Any]]:
        """Describe the table for the manifest: name, kind, size, SHA-256."""
        size, digest = fingerprint(self.table)
        return [{"name": self.name, "kind": f"table of {self.kind}", "size": size, "sha256": digest}]

    def paths(self) -> list[Path]:
        """Return its file, if it is one."""
        return [Path(self.table)] if is_path(self.table) else []

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the table's rows as parts; rows that cannot be used are set aside by number."""
        at_once = _FULL_TEXTS_PER_PART if FULL_TEXT in self.names.values() else _ROWS_PER_PART
        rows = enumerate(read_rows(self.table), start=1)
        first_rows: dict[str, int] = {}
        left_out, first, repeated, cut = 0, None, list[int](), list[int]()
        # Rows of parts that are there are read again, for their ids.
        for part_number, group in enumerate(split_into_groups(rows, at_once)):
            part = CorpusPart(first_source, part_number)
            for number, row in group:
                try:
                    if isinstance(row, BadRowError):
                        raise row
                    named = dict.fromkeys(self.names.values()) | {
                        self.names.get(key, key.strip().lower()): None
                        if isinstance(value, str) and value.strip() in NO_VALUES
                        else value
                        for key, value in row.items()
                    }
                    if any(isinstance(each, str) and len(each) == _LONGEST_CELL for each in row.values()):
                        cut.append(number)
                    if self.kind == "papers":
                        if not _add_paper(part, named, number, self.name, first_rows):
                            repeated.append(number)
                    else:
                        _add_citation(part, named, number, self.name)
                except BadRowError as error:
                    reason = "broken-row" if row is error else "bad-row"
                    bad = Rejection(self.name, None, f"row {number}", reason, str(error))
                    part.rejections.append(bad)
                    left_out, first = left_out + 1, first or bad
            if not parts.is_done(part_key(first_source, part_number)):
                part.write(parts)
        if first is not None:
            logger.warning(
                f"{self.name}: set aside are {left_out:,} rows, the first {first.record}: {first.detail}"
            )
        if cut:
            logger.warning(
                f"{self.name}: texts end at {_LONGEST_CELL:,} characters in {len(cut):,} rows, the first row "
                f"{cut[0]}: Excel cuts them off there; take them from where they came from"
            )
        if repeated:
            logger.warning(
                f"{self.name}: {len(repeated):,} rows, the first row {repeated[0]}, have the id of an "
                "earlier row, which counts"
            )


def _check(table: Table, kind: str) -> dict[str, str]:
    """Return the names that a table's columns are read by, and name those that are not read: a misspelling?

    Raises:
        InputError: a required column is missing, or two differ only in their case.
    """
    required, more = _COLUMNS[kind]
    name, given = name_of_table(table), read_columns(table)
    fold_columns(name, given)
    columns = [column.strip().lower() for column in given]
    if "keywords" not in columns:
        columns = ["keywords" if column == "tags" else column for column in columns]
    named = any(column in columns for column in _NAMING)
    check_columns(name, [column for column in required if column != "id" or not named], columns)
    index: Any = getattr(table, "index", None)
    if (
        kind == "papers"
        and {*_OWN_IDS}.isdisjoint(columns)
        and getattr(index, "inferred_type", "") == "string"
        and not index.name
        and len(index)
    ):
        logger.warning(
            f"{name}: its index, as {index[0]!r}, is not read: to take it for ids, name it: rename_axis('id')"
        )
    if {*_OWN_IDS} <= {*columns}:
        logger.warning(
            f"{name}: papers are known by `id`; `paper_id` beside it is read for identifiers alone"
        )
    names = dict(zip(given, columns, strict=True))
    if notes := list_unread(names, (*required, *more)):
        logger.warning(
            f"{name}: columns that are not used: {', '.join(notes)}; "
            f"besides {', '.join(required)}, a table can have: {', '.join(more)}"
        )
    return names


def _add_paper(part: CorpusPart, row: Row, number: int, table: str, first_rows: dict[str, int]) -> bool:
    """Add the paper of a row, unless one of `first_rows` (id -> number) has its id; return whether it was."""
    fields: dict[str, Any] = {column: _clean_text(row.get(column)) for column in TEXT_COLUMNS}
    fields |= {name: without_tags(fields[name]) for name in ("title", "abstract", "journal")}
    fields["abstract"] = clean_abstract(fields["abstract"])
    fields["language"] = read_language(fields["language"])
    stated_year = _clean_text(row.get("year"))
    year = year_in(stated_year)
    stated_ids = [(name, each) for name in _NAMING if (each := _clean_identifier(row.get(name)))]
    # "n/a" and "in press" are no DOIs.
    own = next((each for name, each in stated_ids if name in _OWN_IDS or _is_identifier(name, each)), None)
    if own is None:
        if not row.keys().isdisjoint(_OWN_IDS):
            raise BadRowError("no id")
        own = name_by_texts(fields, year)
    if not fields["title"] and not fields["abstract"]:
        raise BadRowError(f"{own}: neither title nor abstract")
    by_id = parse_identifier(own)
    for name, each in stated_ids:
        if name in _OWN_IDS:  # `paper_id` beside `id`
            more = parse_identifier(each)._asdict()
            by_id = by_id._replace(**{kind: more[kind] for kind in more if getattr(by_id, kind) is None})
    # Rows that name their paper by a DOI or PMID alone are records of one work, which complete each other.
    key = (by_id.name() or own) if any(name in _OWN_IDS for name, _ in stated_ids) else None
    if key is not None and key in first_rows:
        detail = f"the same work as {table}/row {first_rows[key]}"
        part.rejections.append(Rejection(table, f"row {number}", own, "duplicate", detail))
        return False
    by_kind = is_type_of_retracted(fields["kind"])
    whose = f"the paper {own[:SHOWN]}"
    if fields["kind"] and is_misspelt_kind(fields["kind"]):
        part.rejections.append(_reject_value(table, number, "kind", whose, fields["kind"]))
    fields["kind"] = kind_named(fields["kind"])
    stated = _clean_text(row.get("doi"))
    doi = normalise_doi(stated) or by_id.doi
    if stated and (doi is None or _are_several(stated)):
        part.rejections.append(_reject_value(table, number, "doi", whose, stated))
    if stated_year and year is None:  # such as "in press"
        part.rejections.append(_reject_value(table, number, "year", whose, stated_year))
    others = dict[str, Any]()
    for name in ("pmid", "pmcid", "openalex"):
        given = _clean_identifier(row.get(name)) or ""
        others[name] = _NORMALISE[name](given) or getattr(parse_identifier(given), name)
        if not others[name] and re.search("[1-9]|[A-Za-z]", given) and not _NO_WORK.fullmatch(given):
            part.rejections.append(_reject_value(table, number, name, whose, given))
        others[name] = others[name] or getattr(by_id, name)
    for name, each in {"doi": doi, **others}.items():
        if (stated := getattr(by_id, name)) and stated != each:
            detail = f"of {whose}: {each} in the column {name}, {stated} in the id"
            part.rejections.append(Rejection(table, None, f"row {number}", f"contradicting-{name}", detail))
    full_text = without_tags(_clean_text(row.get(FULL_TEXT)))
    fields |= {column: _list(row.get(column), distinct=column != "authors") for column in LIST_COLUMNS}
    retracted = (_clean_text(row.get("retracted")) or "").replace("_", " ")
    if retracted.lower() not in _TRUE | _FALSE:
        raise BadRowError(f"retracted is {retracted[:40]!r}; write yes or no")
    paper = Paper(
        **fields,
        doi=doi,
        **others,
        other=own,
        year=year,
        retracted=by_kind or retracted.lower() in _TRUE,
        body=((None, full_text),) if full_text else (),
    )
    part.add(paper, f"row {number}")
    if key is not None:
        first_rows[key] = number
    return True


def _reject_value(table: str, number: int, what: str, whose: str, stated: str) -> Rejection:
    """Return the rejection of a value that cannot be read; its row is kept without it."""
    return Rejection(table, None, f"row {number}", f"unreadable-{what}", f"of {whose}: {stated[:SHOWN]}")


def _is_identifier(kind: str, value: str) -> bool:
    """Return whether a cell of a column of identifiers names a work, as does a DOI that cannot be read."""
    is_doi = kind == "doi" and _ANY_DOI.search(value) is not None
    return is_doi or parse_identifier(value).name() is not None or _NORMALISE[kind](value) is not None


def _add_citation(part: CorpusPart, row: Row, number: int, table: str) -> None:
    citing, cited = (_read_end(row.get(end)) for end in ("citing", "cited"))
    title = _clean_text(row.get("cited_title"))
    title = None if title is None or _NO_WORK.fullmatch(title) else title
    if not citing:
        raise BadRowError("no citing paper")
    if not cited and not title:
        raise BadRowError(f"{citing}: no cited work")
    names = parse_identifier(cited) if cited else Identifiers()
    for cell in filter(None, (citing, cited)):
        if _are_several(cell):
            raise BadRowError(f"several works in one cell ({cell[:SHOWN]}): give a row for each")
    stated_year = _clean_text(row.get("cited_year"))
    year = year_in(stated_year)
    if stated_year and year is None:
        whose = f"a work that {citing[:SHOWN]} cites"
        part.rejections.append(_reject_value(table, number, "year", whose, stated_year))
    citation = Citation(**names._asdict(), title=title, year=year, other=cited)
    part.add_citation(citing, parse_identifier(citing).name(), number, citation)


def _read_end(value: Any) -> str | None:
    """Return the id of an end of a citation; None for signs and words that stand for none."""
    text = _clean_identifier(value)
    listed = parse_list(text) if text else None
    if listed is not None and len(listed) == 1 and isinstance(listed[0], str):
        text = _clean_identifier(listed[0])
    return None if text is None or _NO_WORK.fullmatch(text) else text


def _are_several(cell: str) -> bool:
    """Return whether a cell holds ids of several works, as of a list; a DOI may hold a ";" or "," itself."""
    if len(parse_list(cell) or ()) > 1:
        return True
    doi, is_named = normalise_doi(cell), parse_identifier(cell).name() is not None
    for separator, word in _BETWEEN_IDS:
        parts = [part for part in map(str.strip, separator.split(cell)) if part]
        if len(parts) < 2 or (doi and separator.search(doi)):
            continue
        found = [parse_identifier(part) for part in parts]
        others = [part for part, names in zip(parts, found, strict=True) if names.name() is None]
        if any(len({*kind} - {None}) > 1 for kind in zip(*found, strict=True)):
            return True
        # A DOI or PMCID may stand with a PMID.
        if is_named and len(others) < 2 and all(map(str.isdecimal, others)):
            continue
        if all(map(str.isdecimal, parts)) or (word and all(map(word.fullmatch, others))):
            return True
    return False


def _clean_text(value: Any) -> str | None:
    return clean(as_text(value) or "")


def _clean_identifier(value: Any) -> str | None:
    return clean(as_identifier(value) or "")


def _list(value: Any, distinct: bool = True) -> tuple[str, ...]:
    if isinstance(value, str):
        listed = parse_list(value)
        value = _split_list(unescape(value), distinct) if listed is None else listed
    if value is not None and not isinstance(value, list):
        raise BadRowError(f"not a list: {str(value)[:60]!r}")
    texts = tuple(filter(None, (without_tags(_clean_text(each)) for each in value or ())))
    return unique(texts) if distinct else texts


def _split_list(text: str, has_no_commas: bool) -> list[str]:
    """Return the items of a list in a cell that is not one of JSON or Python."""
    text = text.strip()
    if text.startswith("c(") and (listed := parse_list(f"[{text[2:-1]}]")) is not None:  # of R
        return listed
    if _BRACES.fullmatch(text):
        items = next(csv.reader([text[1:-1]], escapechar="\\"), [])
        return [each for each in items if each != "NULL"]
    is_in_brackets = _BRACKETS.fullmatch(text) is not None
    if _BROKEN_ARRAY.fullmatch(text) or (is_in_brackets and "," in text and not has_no_commas):
        raise BadRowError(f"not a JSON array: {text[:60]!r}")
    if is_in_brackets:
        return text[1:-1].split(",")
    return re.split("[;|]" if re.search("[;|]", text) else "[\r\n]", text)

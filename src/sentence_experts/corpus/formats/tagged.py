"""Read the records of tagged text (RIS, MEDLINE) and the rows of CSV, from tag or column to values.

The last one is an error if the file ends inside it, as one that was cut or is being written does.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from sentence_experts.corpus.formats.bibtex import Fields
from sentence_experts.corpus.formats.references import year_in
from sentence_experts.corpus.identifiers import normalise_doi
from sentence_experts.corpus.paper import RecordError
from sentence_experts.table_files import SWALLOWED, holds_rows, named_separator

# Some programs write one space before the hyphen, and editors other spaces.
GAP = r"[ \t\xa0]{1,3}"
# "ER - negative" and "ER - 45% were" continue an abstract.
_NUMBERS = r"[\d\s./:,;()\[\]-]*(?:[oO][fF] [\d,]+\s*)?$"  # that some programs write behind ER
RIS_LINE = re.compile(rf"(?!ER{GAP}-[ \t\xa0]*(?!{_NUMBERS})\S)([A-Z][A-Z0-9]){GAP}-(?:[ \t\xa0](.*))?$")
NBIB_LINE = re.compile(r"([A-Z]{2,4}) {0,2}- ?(.*)$")
# Files that were joined where the first had no line break at its end.
_JOINED = re.compile(rf"^ER{GAP}- *(?=TY{GAP}- )", re.MULTILINE)
_JOINED_NBIB = re.compile(r"(?<=\S)(PMID- \d+[ \t\r]*\n[A-Z]{2,4} *- )")
# Tags of every record, and not of what may stand between two.
_TELLING = {"TI", "T1", "T2", "JO", "AU", "A1", "AB", "N2", "DO", "PY", "Y1"}
_LINE_END = re.compile(r"\r*\n|\r")  # not U+2028 and others, which stand in abstracts
_STRAY = re.compile(r".{0,200}\bTY {1,2}- ", re.IGNORECASE)
# The columns of PubMed (since 2020, and before) and of Zotero that no row leaves empty.
_KEYS = {"pmid": r"\d+", "entrezuid": r"\d+", "key": r"[A-Z0-9]{8}"}
_CREATED = ("create date", r"\d+\D\d+\D\d+.*")  # of PubMed, as it or a spreadsheet writes days
_FEW_COLUMNS = 5  # of which an abstract may look like the ends of two rows
_MAX_VALUE = 1 << 17  # longer than any text of a record


def read_tagged(text: str, line_pattern: re.Pattern[str]) -> Iterator[Fields | RecordError]:
    """Read records of RIS (from TY to ER or the next TY) or MEDLINE (with empty lines between them).

    A line without a tag continues the value before it. The last record is broken if it misses what ends each:
    ER in RIS, and in MEDLINE, where nothing does, the source (SO), which PubMed writes last.
    """
    is_ris = line_pattern is RIS_LINE
    record: Fields = {}
    begin, with_source = 0, False
    values: list[str] = []  # values of the last tag
    seen = stray = False  # whether a record of RIS was read, and whether these lines are of none
    lines = _LINE_END.split(_JOINED.sub("ER  - \n", text) if is_ris else _JOINED_NBIB.sub(r"\n\n\1", text))
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, start=1):
        match = line_pattern.match(line)
        tag = match[1] if match else ""
        ends = tag in ("TY", "ER") if is_ris else not line.strip() or (tag == "PMID" and tag in record)
        stray = stray and not (is_ris and ends)
        if record and ends:
            yield _refuse_joined(record, begin) if is_ris else record
            with_source = with_source or "SO" in record
            record, values, seen = {}, [], True
        is_outside = is_ris and not (record or stray or ends)
        if is_outside and (tag in _TELLING or (seen and _STRAY.match(line))):
            stray = True
            yield RecordError("broken-entry", f"line {number}: a record that does not begin with TY")
        if match is None:
            if values and line.strip() and len(values[-1]) < _MAX_VALUE:
                values[-1] += f"\n{line.strip()}"
        elif record or tag == "TY" or not is_ris:
            begin = begin if record else number
            values = record.setdefault(tag, [])
            values.append((match[2] or "").strip())
    if record and (is_ris or (with_source and "SO" not in record)):
        ending = "ER" if is_ris else "SO"
        yield RecordError("broken-entry", f"line {begin}: the file ends before this record does ({ending})")
    elif record:
        yield record


def _refuse_joined(record: Fields, begin: int) -> Fields | RecordError:
    """Return a record of RIS; an error if it is two, between which the lines that end and begin one lack."""

    def are_several(*tags: str, read: Callable[[str], Any] = str.lower) -> bool:
        found = ({read(" ".join(value.split())) for value in record.get(tag, ())} - {None} for tag in tags)
        return any(len(values) > 1 for values in found)

    dois = sorted(filter(None, map(normalise_doi, record.get("DO", ()))))
    is_of_two = bool(dois) and not dois[-1].startswith(
        dois[0]
    )  # the DOI of a supplement begins as the paper's
    is_of_two = is_of_two or (are_several("AB", "N2") and are_several("PY", "Y1", read=year_in))
    if is_of_two and are_several("TI", "T1"):
        return RecordError("broken-entry", f"line {begin}: two records in one (two titles, and other values)")
    return record


def read_header(text: str) -> set[str]:
    """Return the names of the columns, in lower case; none if the text is no table."""
    try:
        return {name.strip().lower() for name in next(_read_rows(*_find_separator(text)), [])}
    except csv.Error:
        return set()


def _find_separator(text: str) -> tuple[str, str]:
    """Return a text from its header on, and the sign between its cells."""
    text = text.lstrip("\r\n")
    first = re.split("[\r\n]", text, maxsplit=1)[0]
    if separator := named_separator(first):
        return text[len(first) :].lstrip(" \r\n"), separator
    return text, max(",;\t", key=first.count)  # the names of the columns contain none


def _read_rows(text: str, separator: str) -> Iterator[list[str]]:
    """Yield the rows of a table.

    Raises:
        csv.Error: the text ends inside a cell, or inside a row.
    """
    taken: list[str] = []  # lines of the row

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            taken.append(line)
            yield line

    row, of_row, most = list[str](), list[str](), 0
    for following in csv.reader(lines(), delimiter=separator):
        if of_row:
            yield row
        row, of_row, most = following, taken[:], max(most, len(following))
        taken.clear()
    if not of_row:
        return
    is_open = not of_row[-1].endswith(("\n", "\r"))
    if is_open and 1 < len(row) < most:
        raise csv.Error("the last row has too few cells: the file may be cut")
    try:
        list(csv.reader(of_row, delimiter=separator, strict=True))
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise csv.Error("the file ends inside a cell") from error
    yield row


def read_csv(text: str) -> Iterator[Fields | RecordError]:
    """Read rows, which may have more or fewer cells than the header, as in PubMed's files before 2020."""
    csv.field_size_limit(1 << 26)
    text, separator = _find_separator(text)
    rows: list[tuple[int, list[str]]] = []
    end: RecordError | None = None
    try:
        for number, cells in enumerate(_read_rows(text, separator)):
            if not number or any(cell.strip() for cell in cells):
                rows.append((number, cells))
    except csv.Error as error:
        end = RecordError("broken-file", f"after row {rows[-1][0] if rows else 0}: {error}")
    header = [name.strip().lower() for name in rows[0][1]] if rows else []
    place, key = next(
        ((header.index(name), key) for name, key in _KEYS.items() if name in header), (0, "(?s).*")
    )
    short = {number for number, cells in rows if len(cells) < len(header)}
    parts = {
        n for n, cells in rows if n in short and not re.fullmatch(key, "".join(cells[place:][:1]).strip())
    }
    created = header.index(_CREATED[0]) if _CREATED[0] in header else len(header)
    for (number, cells), (after, _) in pairwise([*rows[1:], (0, [])]):
        if any(cell.strip() for cell in cells[len(header) :]):
            why = f"{len(cells)} cells where the header has {len(header)}"
            yield RecordError("broken-entry", f"row {number}: {why}")
        elif number in parts or (number in short and after in parts):
            yield RecordError("broken-entry", f"row {number}: a line break seems to divide it")
        elif number in short and created < len(cells) and not re.fullmatch(_CREATED[1], cells[created]):
            yield RecordError("broken-entry", f"row {number}: a cell seems to be missing")
        elif len(header) > _FEW_COLUMNS and any(
            "\n" in cell and holds_rows(cells, place, separator) for place, cell in enumerate(cells)
        ):
            yield RecordError("broken-entry", f"row {number}: {SWALLOWED}")
        else:
            yield {name: [cell] for name, cell in reversed([*zip(header, cells, strict=False)])}
    if end:
        yield end

"""Files of records (of OpenAlex, reference managers and databases) to parts, one process per file.

A file is read in groups of records, each of which becomes a part, so an import that was killed continues with
the group that it had begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sentence_experts.corpus.formats import openalex
from sentence_experts.corpus.formats.archives import BROKEN_PACKING, kind_of
from sentence_experts.corpus.formats.exports import EXPORTS, find_export, read_beginning
from sentence_experts.corpus.formats.openalex import RecordFilter, iso_day, parse_record, read_works
from sentence_experts.corpus.paper import Paper, RecordError, Rejection
from sentence_experts.corpus.parts import CorpusPart, count_ignored_if_done, mark_done, part_key
from sentence_experts.corpus.workers import Workers
from sentence_experts.errors import InputError
from sentence_experts.progress import progress
from sentence_experts.storage import PartStore, sha256_file

_RECORDS_PER_PART = 10_000
_BYTES_PER_PART = 256 << 20
_NAMED_PER_PART = 100  # rejections of single records; further ones are counted
RECORD_SUFFIXES = (
    *(".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".gz"),
    *(".ris", ".nbib", ".bib", ".bibtex", ".csv", ".txt"),
)
FORMATS = ("openalex", *EXPORTS)


def read_records(format: str, path: Path) -> Iterator[Any]:
    """Yield the records of a file of a format, in order; damage ends it with an error."""
    try:
        yield from read_works(path) if format == "openalex" else EXPORTS[format].records(path)
    except RecordError as error:
        yield error
    except (*BROKEN_PACKING, OSError) as error:
        yield RecordError("broken-file", " ".join(f"{type(error).__name__}: {error}".split())[:200])


def record_to_paper(format: str, record: Any, chosen: RecordFilter, day: int = 0) -> Paper | str:
    """Convert a record of a format, or return the reason why it is left out on purpose.

    Raises:
        RecordError: it cannot become a paper.
    """
    if format == "openalex":
        return openalex.to_paper(parse_record(record), chosen, day)
    paper = EXPORTS[format].to_paper(record)
    is_kept = isinstance(paper, str) or chosen._replace(fields=()).admits(paper.year, ())
    return paper if is_kept else "filtered"


def format_of(file: Path) -> str:
    """Return the format of the first records of a file, or "unknown"; empty if it has none."""
    text = read_beginning(file)
    if known := find_export(text):
        return known
    first = list(islice(read_records("openalex", file), 10))
    for raw in first:
        with suppress(RecordError):
            if not isinstance(raw, RecordError) and openalex.is_work(parse_record(raw)):
                return "openalex"
    return "unknown" if first else ""


@dataclass(frozen=True)
class RecordFile:
    """One file of records of a format (one of `FORMATS`, or "unknown")."""

    name: str
    path: Path
    format: str


def find_record_files(path: Path, format: str | None) -> list[RecordFile]:
    """Return the files of records at a path.

    Of a snapshot of OpenAlex only what lies in a folder `works` counts: it has others too.

    Raises:
        InputError: no file of records, or none whose format is recognised.
    """
    if path.is_dir():
        # The lists of deleted and merged works of a snapshot are no records.
        lists = (".csv", ".csv.gz") if format == "openalex" else ()
        files = [file for file in _list_files(path) if not file.name.lower().endswith(lists)]
        base = path
        works = [file for file in files if "works" in file.relative_to(path.parent).parts[:-1]]
        if works and (format or format_of(works[0])) == "openalex":
            files = works
    else:
        files, base = [path], path.parent
    if not files:
        raise InputError(f"{path}: holds no file of records ({', '.join(RECORD_SUFFIXES)})")
    if not any(file.stat().st_size for file in files):
        raise InputError(f"{path}: empty, no records to read")
    found = [RecordFile(file.relative_to(base).as_posix(), file, format or format_of(file)) for file in files]
    if not any(file.format in FORMATS for file in found):
        raise InputError(
            f"{path}: its first records do not show their format; give `format` ({', '.join(FORMATS)}), or "
            "a table of your own, with columns title and id (or doi, pmid), as `papers`"
        )
    return [file for file in found if file.format]


def find_exports_among(folder: Path) -> list[RecordFile]:
    """Return the files of records in a folder that holds articles too; other files there are left alone."""
    files = (file for file in _list_files(folder) if not kind_of(file))
    named = (RecordFile(file.relative_to(folder).as_posix(), file, format_of(file)) for file in files)
    return [file for file in named if file.format in FORMATS]


def _list_files(folder: Path) -> list[Path]:
    """Return the files in a folder that may hold records, by their names."""
    return [
        file
        for file in sorted(folder.rglob("*"))
        if file.name.lower().endswith(RECORD_SUFFIXES)
        and file.name[0] not in "._"
        and file.name not in ("manifest", "manifest.json")
        and file.is_file()
        and not file.is_symlink()
    ]


@dataclass(frozen=True)
class RecordFiles:
    """Files of records as a source of a corpus (a `building.TableSource`)."""

    files: list[RecordFile]
    chosen: RecordFilter
    workers: int

    def described(self) -> list[dict[str, Any]]:
        """Describe each file for the manifest: name, kind, size, SHA-256, and what is kept of it."""
        filters = {name: value for name, value in self.chosen._asdict().items() if value}
        return [
            {"name": file.name, "kind": f"records of {file.format}", "size": file.path.stat().st_size}
            | {"sha256": sha256_file(file.path)}
            | ({"kept": filters} if filters else {})
            for file in self.files
        ]

    def paths(self) -> list[Path]:
        """Return the files."""
        return [file.path for file in self.files]

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the parts of the files that are not done."""
        numbered = enumerate(self.files, start=first_source)
        waiting = [each for each in numbered if count_ignored_if_done(each[0], parts) is None]
        if waiting:
            tasks = ((number, file, self.chosen, parts) for number, file in waiting)
            with (
                progress("files of records", len(waiting)) as advance,
                Workers(min(self.workers, len(waiting))) as workers,
            ):
                for _ in workers.run(parse_file, tasks):
                    advance()


def parse_file(source: int, file: RecordFile, chosen: RecordFilter, parts: PartStore) -> None:
    """Write the parts of one file that are not there, and note that it is done."""
    if file.format not in FORMATS:
        detail = f"neither records of {', '.join(FORMATS)}, nor an article"
        mark_done(source, parts, 0, 0, [Rejection(file.name, None, None, "unknown-format", detail)])
        return
    count = row = 0
    rejections: list[Rejection] = []
    for group in _read_groups(read_records(file.format, file.path)):
        records = [each for each in group if not isinstance(each, RecordError)]
        errors = [each for each in group if isinstance(each, RecordError)]
        if not parts.is_done(part_key(source, count)):
            _make_part(source, count, file, row, records, chosen).write(parts)
        rejections += [Rejection(file.name, None, None, each.reason, each.detail) for each in errors]
        count, row = count + 1, row + len(records)
    if not count:  # as of another format than was given
        detail = f"no records of {file.format} in it"
        rejections.append(Rejection(file.name, None, None, "no-records", detail))
    mark_done(source, parts, 0, count, rejections)


def _read_groups(records: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield the records of a file, and its errors, in groups that depend only on the file."""
    group: list[Any] = []
    size = 0
    for raw in records:
        group.append(raw)
        size += len(raw) if isinstance(raw, bytes) else 0
        if len(group) >= _RECORDS_PER_PART or size >= _BYTES_PER_PART:
            yield group
            group, size = [], 0
    if group:
        yield group


def _make_part(
    source: int, number: int, file: RecordFile, first: int, group: list[Any], chosen: RecordFilter
) -> CorpusPart:
    """Return the part of a group of records, of which the first is number `first` of the file."""
    part, counts = CorpusPart(source, number), Counter[str]()
    day = iso_day("/".join(file.path.resolve().parts[-2:])) or 0

    def reject(reason: str, detail: str, record: str | None = None, member: str | None = None) -> None:
        if len(part.rejections) < _NAMED_PER_PART:
            part.rejections.append(Rejection(file.name, member, record, reason, detail))
        else:
            counts[reason] += 1

    for row, raw in enumerate(group, start=first + 1):
        try:
            paper = record_to_paper(file.format, raw, chosen, day)
        except RecordError as error:
            reject(error.reason, error.detail, f"record {row}")
            continue
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            detail = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
            reject("odd-record", detail, f"record {row}")
            continue
        if isinstance(paper, str):
            counts[paper] += 1
            continue
        part.add(paper, f"W{paper.openalex}" if paper.openalex else f"record {row}")
        if paper.unreadable_doi:
            reject("unreadable-doi", f"of the paper: {paper.unreadable_doi}", member=paper.names()[0])
        for kind, text in paper.unreadable:
            reject(f"unreadable-{kind}", f"of the paper: {text}", member=paper.names()[0])
    for reason, records in sorted(counts.items()):
        part.rejections.append(Rejection(file.name, None, None, reason, f"part {number}", records))
    return part

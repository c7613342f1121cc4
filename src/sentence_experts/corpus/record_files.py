"""Files of records (of OpenAlex, reference managers and databases) to parts, one process per file.

A file is read in groups of records, each of which becomes a part, so an import that was killed continues with
the group that it had begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sentence_experts.corpus.formats import bibtex, exports, openalex
from sentence_experts.corpus.formats.archives import BROKEN_PACKING
from sentence_experts.corpus.formats.openalex import RemovedWorks, list_kind, read_removed
from sentence_experts.corpus.formats.records import (
    Raw,
    RecordFilter,
    is_parquet,
    iso_day,
    parsed,
    read_raw,
)
from sentence_experts.corpus.paper import Paper, RecordError, Rejection
from sentence_experts.corpus.parts import CorpusPart, ignored_if_done, mark_done, part_key
from sentence_experts.corpus.workers import Workers
from sentence_experts.errors import InputError
from sentence_experts.progress import progress
from sentence_experts.storage import PartStore, sha256_file, sha256_text

_RECORDS_PER_PART = 10_000
_BYTES_PER_PART = 256 << 20
_NAMED_PER_PART = 100  # rejections of single records; further ones are counted
RECORD_SUFFIXES = (
    *(".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".gz", ".parquet"),
    *(".ris", ".nbib", ".bib", ".bibtex", ".csv", ".txt"),
)
_NO_RECORDS = ("manifest", "manifest.json")

ToPaper = Callable[[Any, RecordFilter, int], Paper | str]


def _chosen(to_paper: Callable[[Any], Paper | str]) -> ToPaper:
    """Return what makes a paper of a record of an export, or gives the reason why it is left out."""

    def convert(record: Any, chosen: RecordFilter, day: int) -> Paper | str:
        paper = to_paper(record)
        if isinstance(paper, str) or chosen.admits(
            year=paper.year,
            language=paper.language,
            names=paper.names(),
            types=(paper.article_type,),
            fields=paper.subjects,
        ):
            return paper
        return "filtered"

    return convert


@dataclass(frozen=True)
class RecordFormat:
    """One format of records.

    Attributes:
        begins: whether a text begins as one.
        read: reads the records of a file.
        to_paper: converts a record into a paper, or returns the reason why it is left out on purpose.
    """

    begins: Callable[[str], bool]
    read: Callable[[Path], Iterator[Any]]
    to_paper: ToPaper

    def records(self, path: Path) -> Iterator[Any]:
        """Yield the records of a file, in order; damage ends it with an error."""
        try:
            yield from self.read(path)
        except RecordError as error:
            yield error
        except (*BROKEN_PACKING, OSError, pa.ArrowException) as error:
            yield RecordError("broken-file", " ".join(f"{type(error).__name__}: {error}".split())[:200])


FORMATS = {
    "openalex": RecordFormat(lambda _: False, partial(read_raw, columns=openalex.FIELDS), openalex.to_paper),
    "ris": RecordFormat(exports.is_ris, exports.read_ris, _chosen(exports.ris_to_paper)),
    "nbib": RecordFormat(exports.is_nbib, exports.read_nbib, _chosen(exports.nbib_to_paper)),
    "pubmed-csv": RecordFormat(exports.is_pubmed_csv, exports.read_csv, _chosen(exports.pubmed_to_paper)),
    "zotero-csv": RecordFormat(exports.is_zotero_csv, exports.read_csv, _chosen(exports.zotero_to_paper)),
    "bibtex": RecordFormat(bibtex.is_bibtex, bibtex.read_bibtex, _chosen(bibtex.to_paper)),
}
"""Formats by name, in the order in which they are tried on a file of unknown format."""


def format_of(file: Path) -> str:
    """Return the format of the first records of a file, or "unknown"; empty if it has none."""
    text = "" if is_parquet(file) else exports.beginning(file)
    if known := next((name for name, format in FORMATS.items() if format.begins(text)), None):
        return known
    first = list(islice(FORMATS["openalex"].records(file), 10))
    for raw in first:
        try:
            if not isinstance(raw, RecordError) and openalex.is_work(parsed(raw)):
                return "openalex"
        except RecordError:
            continue
    return "unknown" if first else ""


@dataclass(frozen=True)
class RecordFile:
    """One file of records of a format (a key of `FORMATS`, or "unknown")."""

    name: str
    path: Path
    format: str


def find_record_files(path: Path, format: str | None) -> tuple[list[RecordFile], list[Path]]:
    """Return the files of records at a path, and OpenAlex's lists of deleted and merged works.

    Of a folder that has one, only what lies in a folder `works` counts: an OpenAlex snapshot has others too.
    A folder may hold lists alone.

    Raises:
        InputError: no file of records, or none whose format is recognised.
    """
    is_folder, base = path.is_dir(), path if path.is_dir() else path.parent
    inside = sorted(file for file in path.rglob("*") if _is_plain(file)) if is_folder else [path]
    kinds = {file: list_kind(file) for file in inside}
    lists = [
        file for file in inside if kinds[file] and (kinds[file] != "merged" or "works" in file.parts[-3:])
    ]
    files = [
        file
        for file in inside
        if not kinds[file]
        and file.name[0] not in "._"
        and file.name not in _NO_RECORDS
        and (not is_folder or file.name.lower().endswith(RECORD_SUFFIXES))
    ]
    if is_folder:
        works = [file for file in files if "works" in file.relative_to(path.parent).parts[:-1]]
        files = works or files
    if not files and lists:
        return [], lists
    if not files:
        raise InputError(f"{path}: holds no file of records ({', '.join(RECORD_SUFFIXES)})")
    if not any(file.stat().st_size for file in files):
        raise InputError(f"{path}: empty, no records to read")
    record_files = [
        RecordFile(file.relative_to(base).as_posix(), file, format or format_of(file)) for file in files
    ]
    if not any(file.format in FORMATS for file in record_files):
        raise InputError(
            f"{path}: its first records do not show their format; give `format` ({', '.join(FORMATS)}), or "
            "a table of your own as `papers`"
        )
    # In a folder, such a file may be a note or a table about the records.
    notes = (".txt", ".csv") if is_folder else ()
    strange = {
        file for file in record_files if file.format == "unknown" and file.path.suffix.lower() in notes
    }
    return [file for file in record_files if file.format and file not in strange], lists


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


@dataclass(frozen=True)
class RecordFiles:
    """Files of records as a source of a corpus (a `building.TableSource`)."""

    files: list[RecordFile]
    lists: list[Path]
    chosen: RecordFilter
    workers: int

    def described(self) -> list[dict[str, Any]]:
        """Describe each file for the manifest: name, kind, size, SHA-256, and what is kept of it."""
        filters = {name: value for name, value in asdict(self.chosen).items() if value}
        if self.chosen.names is not None:
            filters["names"] = sha256_text(*sorted(self.chosen.names))
        for kind in sorted({str(list_kind(path)) for path in self.lists}):
            filters[kind] = [sha256_file(path) for path in self.lists if list_kind(path) == kind]
        return [
            {"name": file.name, "kind": f"records of {file.format}", "size": file.path.stat().st_size}
            | {"sha256": sha256_file(file.path)}
            | ({"kept": filters} if filters else {})
            for file in self.files
        ]

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the parts of the files that are not done."""
        numbered = list(enumerate(self.files, start=first_source))
        waiting = [(number, file) for number, file in numbered if ignored_if_done(number, parts) is None]
        if not waiting:
            return
        removed = parts.folder / "removed.npy"
        np.save(removed, read_removed(self.lists))
        tasks = ((number, file, self.chosen, removed, parts) for number, file in waiting)
        with (
            progress("files of records", len(waiting)) as advance,
            Workers(min(self.workers, len(waiting))) as workers,
        ):
            for _ in workers.run(parse_file, tasks):
                advance()


def parse_file(source: int, file: RecordFile, chosen: RecordFilter, removed: Path, parts: PartStore) -> None:
    """Write the parts of one file that are not there, and note that it is done."""
    if file.format not in FORMATS:
        mark_done(source, parts, 0, 0, [Rejection(file.name, None, None, "unknown-format")])
        return
    # Mapped, so that all workers share its pages; as a plain array, which is faster to index.
    gone = RemovedWorks(np.asarray(np.load(removed, mmap_mode="r")))
    count = row = 0
    rejections: list[Rejection] = []
    for group, errors in _groups(FORMATS[file.format].records(file.path)):
        if not parts.is_done(part_key(source, count)):
            _part(source, count, file, row, group, chosen, gone).write(parts)
        rejections += [Rejection(file.name, None, None, each.reason, each.detail) for each in errors]
        count, row = count + 1, row + len(group)
    mark_done(source, parts, 0, count, rejections)


def _groups(records: Iterator[Raw | RecordError]) -> Iterator[tuple[list[Raw], list[RecordError]]]:
    """Yield the records of a file in groups that depend only on the file, and what is wrong with the file."""
    group: list[Raw] = []
    errors: list[RecordError] = []
    size = 0
    for raw in records:
        if isinstance(raw, RecordError):
            errors.append(raw)
            continue
        group.append(raw)
        size += len(raw) if isinstance(raw, bytes) else 0
        if len(group) >= _RECORDS_PER_PART or size >= _BYTES_PER_PART:
            yield group, errors
            group, errors, size = [], [], 0
    if group or errors:
        yield group, errors


def _part(
    source: int,
    number: int,
    file: RecordFile,
    first: int,
    group: list[Raw],
    chosen: RecordFilter,
    gone: RemovedWorks,
) -> CorpusPart:
    """Return the part of a group of records, of which the first is number `first` of the file."""
    part, counts = CorpusPart(source, number), Counter[str]()
    to_paper, day = FORMATS[file.format].to_paper, iso_day(file.name) or 0

    def reject(reason: str, detail: str, record: str | None = None, member: str | None = None) -> None:
        if len(part.rejections) < _NAMED_PER_PART:
            part.rejections.append(Rejection(file.name, member, record, reason, detail))
        else:
            counts[reason] += 1

    for row, raw in enumerate(group, start=first + 1):
        try:
            paper = to_paper(parsed(raw), chosen, day)
        except RecordError as error:
            reject(error.reason, error.detail, f"record {row}")
            continue
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            detail = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
            reject("odd-record", detail, f"record {row}")
            continue
        if isinstance(paper, Paper) and paper.openalex:
            cited = gone.renumbered(paper.cites_openalex, paper.openalex)
            if cited is not paper.cites_openalex:
                paper = replace(paper, cites_openalex=cited)
            paper = gone.reason(paper.openalex or 0) or paper
        if isinstance(paper, str):
            counts[paper] += 1
            continue
        part.add(paper, f"W{paper.openalex}" if paper.openalex else f"record {row}")
        if paper.unreadable_doi:
            reject("unreadable-doi", f"of the paper: {paper.unreadable_doi}", member=paper.names()[0])
    for reason, records in sorted(counts.items()):
        part.rejections.append(Rejection(file.name, None, None, reason, f"part {number}", records))
    return part

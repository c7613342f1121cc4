"""Files of records (of OpenAlex, reference managers and databases) to parts, one process per file.

A file is read in groups of records, each of which becomes a part, so an import that was killed continues with
the group that it had begun.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentence_experts.corpus.formats.openalex import RemovedWorks, list_kind, read_removed
from sentence_experts.corpus.formats.records import Raw, RecordFilter, iso_day, parsed
from sentence_experts.corpus.paper import RecordError, Rejection
from sentence_experts.corpus.parts import CorpusPart, ignored_if_done, mark_done, part_key
from sentence_experts.corpus.record_formats import FORMATS, NAMED_PER_PART, Add, Reading, format_of
from sentence_experts.corpus.workers import Workers
from sentence_experts.errors import InputError
from sentence_experts.progress import progress
from sentence_experts.storage import PartStore, sha256_file, sha256_text

_RECORDS_PER_PART = 10_000
_BYTES_PER_PART = 256 << 20
RECORD_SUFFIXES = (
    *(".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz", ".gz", ".parquet"),
    *(".ris", ".nbib", ".bib", ".bibtex", ".csv", ".txt"),
)
_NO_RECORDS = ("manifest", "manifest.json")


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
    inside = [path] if path.is_file() else sorted(_walk(path))
    kinds = {file: list_kind(file) for file in inside}
    lists = [
        file for file in inside if kinds[file] and (kinds[file] != "merged" or "works" in file.parts[-3:])
    ]
    files = [file for file in inside if not kinds[file] and file.name[0] not in "._"]
    files = [file for file in files if file.name not in _NO_RECORDS]
    if path.is_dir():
        files = [file for file in files if file.name.lower().endswith(RECORD_SUFFIXES)]
        of_works = [file for file in files if "works" in file.relative_to(path.parent).parts[:-1]]
        files = of_works or files
    if not files and lists:
        return [], lists
    if not files:
        raise InputError(f"{path}: holds no file of records ({', '.join(RECORD_SUFFIXES)})")
    if not any(file.stat().st_size for file in files):
        raise InputError(f"{path}: empty, no records to read")
    base = path.parent if path.is_file() else path
    record_files = []
    for file in files:
        kind = format or format_of(file)
        # In a folder, such a file may be a note or a table about the records.
        if kind == "unknown" and path.is_dir() and file.suffix.lower() in (".txt", ".csv"):
            continue
        if kind:
            record_files.append(RecordFile(file.relative_to(base).as_posix(), file, kind))
    if not any(file.format in FORMATS for file in record_files):
        raise InputError(
            f"{path}: its first records do not show their format; give `format` ({', '.join(FORMATS)}), or "
            "a table of your own as `papers`"
        )
    return record_files, lists


def _walk(folder: Path) -> Iterator[Path]:
    for base, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(base, name) for name in files if not os.path.islink(os.path.join(base, name)))


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
    format = FORMATS.get(file.format)
    if format is None:
        mark_done(source, parts, 0, 0, [Rejection(file.name, None, None, "unknown-format")])
        return
    # Mapped, so that all workers share its pages; as a plain array, which is faster to index.
    gone = RemovedWorks(np.asarray(np.load(removed, mmap_mode="r")))
    reading = Reading(file.name, chosen, iso_day(file.name) or 0, gone)
    count = row = 0
    rejections: list[Rejection] = []
    for group, errors in _groups(format.records(file.path)):
        if not parts.is_done(part_key(source, count)):
            _part(source, count, file.name, row, group, format.add, reading).write(parts)
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
    source: int, number: int, name: str, first: int, group: list[Raw], add: Add, reading: Reading
) -> CorpusPart:
    part = CorpusPart(source, number)
    counts: dict[str, int] = {}
    for place, raw in enumerate(group):
        try:
            left_out = add(part, parsed(raw), first + place, reading)
        except RecordError as error:
            reason, detail = error.reason, error.detail
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            reason, detail = "odd-record", f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
        else:
            if left_out:
                counts[left_out] = counts.get(left_out, 0) + 1
            continue
        if len(part.rejections) < NAMED_PER_PART:
            part.rejections.append(Rejection(name, None, f"record {first + place + 1}", reason, detail))
        else:
            counts[reason] = counts.get(reason, 0) + 1
    for reason, records in sorted(counts.items()):
        part.rejections.append(Rejection(name, None, None, reason, f"part {number}", records))
    return part

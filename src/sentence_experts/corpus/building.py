"""Build a corpus of documents, papers and citations: parse them on all cores, resolve them, write the tables.

Parsed parts are kept in `.partial/` until the corpus is whole. A run that was interrupted finds its finished
parts there and parses only the rest. Where a part ends depends only on the sources, so the result does not
depend on the number of workers.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq

from sentence_experts import __version__
from sentence_experts.corpus.corpus_folder import (
    BODIES,
    BODIES_SCHEMA,
    CITATIONS,
    CITATIONS_SCHEMA,
    DOMAINS,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    MENTIONS,
    MENTIONS_SCHEMA,
    PAPERS,
    PAPERS_SCHEMA,
    PROVENANCE,
    REJECTED,
    CorpusFolder,
)
from sentence_experts.corpus.formats.archives import Source
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parsing import parse_sources, source_hash
from sentence_experts.corpus.parts import REJECTED as PART_REJECTED
from sentence_experts.corpus.parts import CorpusPart, open_parts, read_rejections, write_rejections
from sentence_experts.corpus.resolving import SCRATCH, resolving
from sentence_experts.corpus.workers import number_of_workers
from sentence_experts.errors import InputError
from sentence_experts.storage import (
    Output,
    PartStore,
    output,
    remove_leftovers,
    sha256_text,
    write_json,
    write_stream,
)

logger = logging.getLogger(__name__)

PARTIAL = ".partial"
JOURNAL = "journal.sqlite"
OURS = (PARTIAL, PAPERS, CITATIONS, MENTIONS, BODIES, MANIFEST, DOMAINS, PROVENANCE)
JOURNAL_FILES = (JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm")
# The answers of services, and the list that says why a run found nothing.
KEPT = (REJECTED, *JOURNAL_FILES)


class TableSource(Protocol):
    """A source of papers or citations that are not XML documents."""

    def described(self) -> list[dict[str, Any]]:
        """Describe each source for the manifest: name, kind, size, SHA-256."""

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the parts of all described sources, which are numbered from `first_source`."""


class Fetch(Protocol):
    """The additional tables of a fetched corpus."""

    def rejections(self) -> list[Rejection]:
        """Return what could not be fetched, or was left out on purpose."""

    def finish(self, out: Path) -> tuple[list[str], dict[str, Any]]:
        """Write the tables; return their names and a part of the manifest."""


@dataclass(frozen=True)
class Sources:
    """The sources of a corpus.

    Attributes:
        sources: documents.
        extras: papers and citations that are not XML documents.
        described: name, kind, size and SHA-256 of each, documents first.
        firsts: the number of the first source of each of the `extras`.
        state: sizes and times of the files, to notice a change.
        full_text: whether the text of bodies is kept.
    """

    sources: Sequence[Source]
    extras: Sequence[TableSource]
    described: list[dict[str, Any]]
    firsts: list[int]
    state: str
    full_text: bool = False

    @classmethod
    def of(cls, sources: Sequence[Source], extras: Sequence[TableSource], full_text: bool = False) -> Sources:
        """Describe the sources as they are now."""
        state = _state_of(sources)
        described: list[dict[str, Any]] = []
        for source in sources:
            size, digest = source_hash(source)
            described.append({"name": source.name, "kind": source.kind, "size": size, "sha256": digest})
        read = cls(sources, [], described, [], state, full_text)
        for extra in extras:
            read = read.adding(extra)
        return read

    def adding(self, extra: TableSource) -> Sources:
        """Return these sources with another one."""
        return replace(
            self,
            extras=[*self.extras, extra],
            described=[*self.described, *extra.described()],
            firsts=[*self.firsts, len(self.described)],
        )

    def request(self) -> str:
        """Return a hash of what decides the corpus."""
        described = json.dumps(self.described, sort_keys=True)
        return sha256_text(__version__, described, *([BODIES] if self.full_text else []))

    def check_unchanged(self) -> None:
        """Refuse to finish a corpus of sources that were replaced meanwhile.

        Raises:
            InputError: they were.
        """
        if _state_of(self.sources) != self.state:
            names = ", ".join(source.name for source in self.sources[:3])
            raise InputError(f"{names}: changed while it was read; give the same command again")


def _state_of(sources: Sequence[Source]) -> str:
    """Return the sizes and times of all files, which are cheaper to compare than contents."""
    states = []
    for source in sources:
        inside = source.path.rglob("*") if source.kind == "folder" and source.documents is None else ()
        for path in (source.path, *inside):
            status = os.stat(path) if path.exists() else None
            states.append(f"{path} {status and (status.st_size, status.st_mtime_ns)}")
    return sha256_text(*sorted(states))


def corpus_output(out: Path, overwrite: bool) -> AbstractContextManager[Output]:
    """Lock the folder of a corpus while it is written (`storage.output`)."""
    return output(out, "corpus", names=OURS, keeps=KEPT, grows=True, overwrite=overwrite)


def build_corpus(
    place: Output,
    read: Sources,
    workers: int | None,
    fetch: Fetch | None = None,
    memory: str | None = None,
) -> CorpusFolder:
    """Parse, resolve and write a corpus, reusing the parts of an interrupted run.

    Raises:
        InputError: no article could be read, or the sources changed meanwhile.
    """
    parts = open_parts(place.path / PARTIAL, request=read.request())
    try:
        ignored = _parse(place, parts, read, number_of_workers(workers))
        return _write_corpus(place, parts, read, ignored, number_of_workers(workers), fetch, memory)
    except InputError:
        if not any(pq.read_metadata(part).num_rows for part in parts.paths()):  # nothing is lost
            parts.remove()
        raise


def _parse(place: Output, parts: PartStore, read: Sources, workers: int) -> int:
    """Write the parts that are not there; returns the number of members that are no documents."""
    if parts.keys():
        logger.info(f"continuing an interrupted import in {place.path}")
    remove_leftovers(parts.folder)
    shutil.rmtree(parts.folder / SCRATCH, ignore_errors=True)
    ignored = parse_sources(list(read.sources), parts, workers, read.full_text)
    for extra, first in zip(read.extras, read.firsts, strict=True):
        extra.parse(parts, first)
    read.check_unchanged()
    # An empty part, so that there are tables to read if nothing was parsed.
    CorpusPart(len(read.described), 0).write(parts)
    return ignored


def _write_corpus(
    place: Output,
    parts: PartStore,
    read: Sources,
    ignored: int,
    workers: int,
    fetch: Fetch | None,
    memory: str | None,
) -> CorpusFolder:
    out, names = place.path, [str(source["name"]) for source in read.described]
    # Without a manifest there is no corpus: it is removed first and written last.
    (out / MANIFEST).unlink(missing_ok=True)
    rejections = [rejection for path in parts.paths(PART_REJECTED) for rejection in read_rejections(path)]
    tables = [PAPERS, CITATIONS, MENTIONS]
    with resolving(parts, names, workers, memory) as resolved:
        write_stream(out / PAPERS, resolved.papers(), PAPERS_SCHEMA)
        write_stream(out / CITATIONS, resolved.citations(), CITATIONS_SCHEMA)
        write_stream(out / MENTIONS, resolved.mentions(), MENTIONS_SCHEMA)
        (out / BODIES).unlink(missing_ok=True)
        if resolved.has_bodies:
            write_stream(out / BODIES, resolved.bodies(), BODIES_SCHEMA)
            tables.append(BODIES)
        rejections += resolved.duplicates()
        counts = resolved.counts(out / PAPERS, out / CITATIONS, out / MENTIONS)
    rejections += fetch.rejections() if fetch else []
    rejections.sort(key=_by_place)
    write_rejections(out / REJECTED, rejections)
    if not counts["papers"]:
        parts.remove()
        for name in tables if rejections else [*tables, REJECTED]:
            (out / name).unlink()
        raise _nothing_read(out, names, rejections)
    rejected: Counter[str] = Counter()
    for rejection in rejections:
        rejected[rejection.reason] += rejection.records
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "request": read.request(),
        "sources": read.described,
        "counts": counts | {"rejected": dict(rejected), "other_files": ignored},
    }
    if fetch:
        more, described = fetch.finish(out)
        tables += more
        manifest |= described
    # Their hashes are in the record that `finish` writes.
    manifest["tables"] = dict.fromkeys(tables, "")
    write_json(out / MANIFEST, manifest)
    parts.remove()
    place.result = {"request": read.request()}
    place.finish(MANIFEST, *tables)
    return CorpusFolder.open(place.path)


def _nothing_read(out: Path, sources: list[str], rejected: list[Rejection]) -> InputError:
    """Return the error of a corpus without papers."""
    where = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    if not rejected:
        return InputError(f"{where}: holds no article (.xml, .nxml, or an archive of them) and no record")
    records = sum(rejection.records for rejection in rejected)
    if all(rejection.reason == "filtered" for rejection in rejected):
        return InputError(f"{where}: none of the {records:,} records matches the settings")
    first = next(rejection for rejection in rejected if rejection.reason != "filtered")
    named = "/".join(filter(None, [first.member, first.record])) or first.source
    return InputError(
        f"{where}: no article could be read; {records:,} were set aside, the first is {named} "
        f"({first.reason}: {first.detail}); all are listed in {out / REJECTED}"
    )


def _by_place(rejection: Rejection) -> tuple[Any, ...]:
    record = rejection.record or ""
    return (rejection.source, rejection.member or "", len(record), record, rejection.reason, rejection.detail)

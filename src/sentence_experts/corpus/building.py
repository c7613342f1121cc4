"""Build a corpus of documents, papers and citations: parse them on all cores, resolve them, write the tables.

Parsed parts are kept in `.partial/` until the corpus is whole. A run that was interrupted finds its finished
parts there and parses only the rest. Where a part ends depends only on the sources, so the result does not
depend on the number of workers.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
from sentence_experts.corpus.paper import NOT_FETCHED, Rejection
from sentence_experts.corpus.parsing import parse_sources, source_hash
from sentence_experts.corpus.parts import (
    COMPLETING,
    CorpusPart,
    open_parts,
    part_key,
    read_rejections,
    write_rejections,
)
from sentence_experts.corpus.parts import REJECTED as PART_REJECTED
from sentence_experts.corpus.records import RECORDS, CorpusRecords, write_records
from sentence_experts.corpus.resolving import SCRATCH, resolving
from sentence_experts.corpus.workers import number_of_workers
from sentence_experts.errors import InputError
from sentence_experts.storage import (
    Output,
    PartStore,
    file_state,
    output,
    remove_leftovers,
    sha256_text,
    write_json,
    write_stream,
)

logger = logging.getLogger(__name__)

PARTIAL = ".partial"
JOURNAL = "journal.sqlite"
_WRITTEN_FILES = (PARTIAL, PAPERS, CITATIONS, MENTIONS, BODIES, MANIFEST, DOMAINS, PROVENANCE, RECORDS)
# The answers of services, and the list that says why a run found nothing.
_KEPT = (REJECTED, JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm")


class TableSource(Protocol):
    """A source of papers or citations that are not XML documents."""

    def described(self) -> list[dict[str, Any]]:
        """Describe each source for the manifest: name, kind, size, SHA-256."""

    def paths(self) -> list[Path]:
        """Return the files that are read."""

    def parse(self, parts: PartStore, first_source: int) -> None:
        """Write the parts of all described sources, which are numbered from `first_source`."""


class Additions(NamedTuple):
    """The content of a corpus that services give, besides papers and citations.

    Attributes:
        rejections: the records that could not be fetched, or were left out on purpose.
        finish: writes additional tables into the folder; returns their names and a part of the manifest.
    """

    rejections: list[Rejection]
    finish: Callable[[Path], tuple[list[str], dict[str, Any]]]


Completion = Callable[[Path], tuple[TableSource, Additions]]
"""Takes the table of papers, and returns the records that complete them."""


class Sources:
    """The sources of a corpus.

    Attributes:
        documents: sources of XML documents.
        tables: papers and citations that are not XML documents, each with the number of its first source.
        full_text: whether the text of bodies is kept.
        corpora: hashes of the corpora whose sources are among these.
        followed: whether they are one file or folder, read whole into the corpus that follows it.
        described: name, kind, size and SHA-256 of each source, documents first.
        corpus_of: number of a source -> number of the corpus that it comes from, if it does.
    """

    def __init__(
        self,
        documents: Sequence[Source],
        tables: Sequence[TableSource] = (),
        full_text: bool = False,
        corpora: Sequence[str] = (),
    ) -> None:
        self.documents, self.full_text, self.corpora = list(documents), full_text, list(corpora)
        self.followed = False
        self._state = _list_states(documents, [])
        self.tables: list[tuple[int, TableSource]] = []
        self.described: list[dict[str, Any]] = []
        self.corpus_of: dict[int, int] = {}
        for source in documents:
            size, digest = source_hash(source)
            named = {"name": source.name, "kind": source.kind}
            kept = {"full_text": True} if full_text else {}
            self.described.append(named | {"size": size, "sha256": digest} | kept)
        for table in tables:
            self.add(table)

    def add(self, table: TableSource) -> None:
        """Add another source."""
        first = len(self.described)
        self._state += _list_states([], table.paths())
        self.tables.append((first, table))
        self.described += table.described()
        if isinstance(table, CorpusRecords):
            self.corpus_of |= dict.fromkeys(range(first, len(self.described)), first)

    @property
    def names(self) -> list[str]:
        """The name of each source that was given."""
        return [str(source["name"]) for source in self.described if source["kind"] != COMPLETING]

    def hash_request(self) -> str:
        """Return a hash of what decides the corpus."""
        return sha256_text(__version__, json.dumps(self.described, sort_keys=True), *self.corpora)

    def check_unchanged(self) -> None:
        """Refuse to finish a corpus of sources that were replaced meanwhile.

        Raises:
            InputError: they were.
        """
        paths = [path for _, table in self.tables for path in table.paths()]
        if _list_states(self.documents, paths) != sorted(self._state):
            raise InputError(
                f"{', '.join(self.names[:3])}: changed while it was read; give the same command again"
            )


def _list_states(sources: Sequence[Source], paths: Iterable[Path]) -> list[str]:
    """Return the states of all files, which are cheaper to compare than contents."""
    all_paths = [*paths]
    for source in sources:
        inside = source.path.rglob("*") if source.kind == "folder" and source.documents is None else ()
        all_paths += [source.path, *inside]
    return sorted(f"{path} {file_state(path) if path.exists() else None}" for path in all_paths)


def open_corpus_output(out: Path, overwrite: bool) -> AbstractContextManager[Output]:
    """Lock the folder of a corpus while it is written (`storage.output`)."""
    return output(out, "corpus", names=_WRITTEN_FILES, keeps=_KEPT, grows=True, overwrite=overwrite)


def build_corpus(
    place: Output,
    sources: Sources,
    workers: int | None,
    *,
    memory: str | None = None,
    additions: Additions | None = None,
    complete: Completion | None = None,
) -> CorpusFolder:
    """Parse, resolve and write a corpus, reusing the parts of an interrupted run.

    Raises:
        InputError: no article could be read, or the sources changed meanwhile.
    """
    workers = number_of_workers(workers)
    parts = open_parts(place.path / PARTIAL, request=sources.hash_request())
    if parts.keys():
        logger.info(f"continuing an interrupted import in {place.path}")
    remove_leftovers(parts.folder)
    shutil.rmtree(parts.folder / SCRATCH, ignore_errors=True)
    try:
        ignored = parse_sources(sources.documents, parts, workers, sources.full_text)
        for first, table in sources.tables:
            table.parse(parts, first)
        sources.check_unchanged()
        if not parts.keys():  # there must be tables to read
            CorpusPart(len(sources.described), 0).write(parts)
        if complete:
            with resolving(parts, sources.described, sources.corpus_of, workers, memory) as resolved:
                write_stream(parts.folder / PAPERS, resolved.papers(), PAPERS_SCHEMA)
            found, additions = complete(parts.folder / PAPERS)
            first = len(sources.described)
            sources.add(found)
            # Those of an interrupted run, in which fewer requests were answered.
            for part in parts.folder.glob(f"{part_key(first, 0).partition('-')[0]}-*"):
                part.unlink()
            found.parse(parts, first)
        return _write_corpus(place, parts, sources, ignored, workers, additions, memory)
    except InputError:
        if not any(pq.read_metadata(part).num_rows for part in parts.paths()):  # nothing is lost
            parts.remove()
        raise


def _write_corpus(
    place: Output,
    parts: PartStore,
    sources: Sources,
    ignored: int,
    workers: int,
    additions: Additions | None,
    memory: str | None,
) -> CorpusFolder:
    out = place.path
    # Without a manifest there is no corpus: it is removed first and written last.
    (out / MANIFEST).unlink(missing_ok=True)
    (out / BODIES).unlink(missing_ok=True)
    shutil.rmtree(out / RECORDS, ignore_errors=True)
    rejections = _read_rejections(parts)
    tables = [PAPERS, CITATIONS, MENTIONS]
    with resolving(parts, sources.described, sources.corpus_of, workers, memory) as resolved:
        write_stream(out / PAPERS, resolved.papers(), PAPERS_SCHEMA)
        write_stream(out / CITATIONS, resolved.citations(), CITATIONS_SCHEMA)
        write_stream(out / MENTIONS, resolved.mentions(), MENTIONS_SCHEMA)
        if resolved.has_bodies:
            write_stream(out / BODIES, resolved.bodies(), BODIES_SCHEMA)
            tables.append(BODIES)
        left_out = additions.rejections if additions else []
        kept = [each for each in left_out if each.reason != NOT_FETCHED]
        write_records(out, parts, resolved, sorted(rejections + kept, key=_by_place))
        rejections += resolved.duplicates() + left_out
        counts = resolved.counts(out / PAPERS, out / CITATIONS, out / MENTIONS)
    rejections.sort(key=_by_place)
    write_rejections(out / REJECTED, rejections)
    if not counts["papers"]:
        parts.remove()
        shutil.rmtree(out / RECORDS)
        for name in tables if rejections else [*tables, REJECTED]:
            (out / name).unlink()
        raise _make_empty_error(out, sources.names, rejections)
    rejected: Counter[str] = Counter()
    for rejection in rejections:
        rejected[rejection.reason] += rejection.records
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "request": sources.hash_request(),
        "sources": sources.described,
        "counts": counts | {"rejected": dict(rejected), "other_files": ignored},
    }
    if additions:
        more, described = additions.finish(out)
        tables += more
        manifest |= described
    # Their hashes are in the record that `finish` writes.
    manifest["tables"] = dict.fromkeys(tables, "")
    write_json(out / MANIFEST, manifest)
    parts.remove()
    place.result = {"missing": sum(each.records for each in left_out if each.reason == NOT_FETCHED)}
    place.finish(MANIFEST, *tables, RECORDS)
    return CorpusFolder.open(place.path)


def _read_rejections(parts: PartStore) -> list[Rejection]:
    """Return what was set aside when the sources were read; a source that was read twice counts once."""
    rejected: Counter[Rejection] = Counter()
    by_source: dict[str, Counter[Rejection]] = {}
    for key in parts.keys(PART_REJECTED):
        by_source.setdefault(key[:4], Counter()).update(read_rejections(parts.path(key, PART_REJECTED)))
    for each in by_source.values():
        rejected |= each
    return list(rejected.elements())


def _make_empty_error(out: Path, sources: list[str], rejected: list[Rejection]) -> InputError:
    """Return the error of a corpus without papers."""
    where = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
    if not rejected:
        return InputError(f"{where}: holds no article (.xml, .nxml, or an archive of them) and no record")
    records = sum(rejection.records for rejection in rejected)
    odd = [rejection for rejection in rejected if rejection.reason not in ("filtered", "xpac")]
    if count := records - sum(rejection.records for rejection in odd):
        more = f"; {records - count:,} more were set aside: {out / REJECTED}" if odd else ""
        return InputError(f"{where}: none of the {count:,} records matches the settings{more}")
    first = odd[0]
    named = "/".join(filter(None, [first.member, first.record])) or first.source
    return InputError(
        f"{where}: no article could be read; {records:,} were set aside, the first is {named} "
        f"({first.reason}: {first.detail}); all are listed in {out / REJECTED}"
    )


def _by_place(rejection: Rejection) -> tuple[Any, ...]:
    record = rejection.record or ""
    return (rejection.source, rejection.member or "", len(record), record, rejection.reason, rejection.detail)

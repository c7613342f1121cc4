"""Parse sources into parts: one process reads archives in order, the others parse the documents."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from typing import IO, cast

from sentence_experts.corpus.formats.archives import (
    BROKEN_PACKING,
    Document,
    Source,
    UnpackedStream,
    members,
)
from sentence_experts.corpus.formats.articles import read_articles
from sentence_experts.corpus.paper import Deletion, Paper, RecordError, Rejection
from sentence_experts.corpus.parts import CorpusPart, count_ignored_if_done, mark_done, part_key
from sentence_experts.corpus.workers import Workers
from sentence_experts.progress import progress
from sentence_experts.storage import PartStore, sha256_file

_PART_BYTES = 8 << 20
_PART_DOCUMENTS = 512
_USUAL_EXPANSION = 10  # approximate ratio of the sizes of an XML document and its gzipped form
_OF_ONE_RECORD = frozenset({"no-metadata", "no-pmid"})  # the other records of the document are read


@dataclass(slots=True)
class _Listing:
    """The documents of a source in groups, which become a part each, and its other members."""

    source: Source
    ignored: int = 0
    groups: int = 0
    rejections: list[Rejection] = field(default_factory=list)

    def __iter__(self) -> Iterator[list[Document]]:
        # Groups depend only on the documents, not on the number of workers.
        group: list[Document] = []
        size = 0
        for member in members(self.source):
            if member is None:
                self.ignored += 1
            elif isinstance(member, Rejection):
                self.rejections.append(member)
            else:
                expected = member.size * (_USUAL_EXPANSION if member.is_packed else 1)
                if group and (size + expected > _PART_BYTES or len(group) >= _PART_DOCUMENTS):
                    self.groups += 1
                    yield group
                    group, size = [], 0
                group.append(member)
                size += expected
        if group:
            self.groups += 1
            yield group


def parse_sources(sources: list[Source], parts: PartStore, workers: int, full_text: bool = False) -> int:
    """Parse every source into parts, except those that are there; return the number of members that are no
    documents. `full_text` keeps the text of bodies."""
    ignored = 0
    with progress("articles") as advance, Workers(workers) as pool:
        for index, source in enumerate(sources):
            known = count_ignored_if_done(index, parts)
            if known is None:
                listing = _Listing(source)
                tasks = (
                    (index, source.name, number, group, full_text, parts)
                    for number, group in enumerate(listing)
                    if not parts.is_done(part_key(index, number))
                )
                for documents in pool.run(parse_part, tasks):
                    advance(documents)
                mark_done(index, parts, listing.ignored, listing.groups, listing.rejections)
                known = listing.ignored
            ignored += known
    return ignored


def parse_part(
    source: int, name: str, number: int, documents: list[Document], full_text: bool, parts: PartStore
) -> int:
    """Parse consecutive documents of a source and write their part; returns the number of documents."""
    part = CorpusPart(source, number)
    # Nothing here makes reference cycles, and searching many small objects for them takes time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for document in documents:
            part.rejections += _parse_document(document, name, full_text, part)
        part.write(parts)
    finally:
        if collecting:
            gc.enable()
    return len(documents)


def _parse_document(document: Document, source: str, full_text: bool, part: CorpusPart) -> list[Rejection]:
    """Add the records of a document to a part; return those that cannot be read."""
    rejections: list[Rejection] = []
    position = 0

    def reject(reason: str, detail: str, record: int | None = None) -> None:
        named = None if record is None else str(record)
        rejections.append(Rejection(source, document.name, named, reason, detail))

    try:
        with ExitStack() as stack:
            stream: IO[bytes] = io.BytesIO(document.data or b"")
            if document.path is not None:
                stream = stack.enter_context(document.path.open("rb"))
            unpacked = cast("IO[bytes]", UnpackedStream(stream)) if document.is_packed else stream
            for position, outcome in enumerate(read_articles(unpacked, full_text), start=1):
                if isinstance(outcome, Deletion):
                    part.delete(outcome, document.name)
                elif isinstance(outcome, Paper):
                    part.add(outcome, document.name)
                    dois = [("the paper", outcome.unreadable_doi)]
                    dois += [("a reference", each.unreadable_doi) for each in outcome.citations]
                    for whose, doi in dois:
                        if doi:
                            reject("unreadable-doi", f"of {whose}: {doi}", position)
                else:
                    record = position if outcome.reason in _OF_ONE_RECORD else None
                    reject(outcome.reason, outcome.detail, record)
    except RecordError as error:
        reject(error.reason, error.detail)
    except BROKEN_PACKING as error:
        reject("broken-packing", f"{type(error).__name__}: {error}")
    except OSError as error:
        reject("unreadable", error.strerror or str(error))
    except Exception as error:
        # One document must not stop a million others: it is set aside by name.
        reject("error", f"{type(error).__name__}: {' '.join(str(error).split())}"[:300], position + 1)
    return rejections


def source_hash(source: Source) -> tuple[int, str]:
    """Return (bytes, SHA-256) of a source; a folder is hashed over the names and hashes of its documents."""
    if source.kind != "folder" and source.documents is None:
        return source.path.stat().st_size, sha256_file(source.path)
    digest = sha256()
    size = 0
    for member in members(source):
        if isinstance(member, Document):
            size += member.size
            try:
                content = sha256_file(member.path) if member.path else sha256(member.data or b"").hexdigest()
            except OSError:
                content = "unreadable"
            digest.update(f"{member.name}\0{content}\0".encode())
        elif member is not None:
            digest.update(f"{member.member}\0{member.reason}\0".encode())
    return size, digest.hexdigest()

"""Parse sources into parts: one process reads archives in order, the others parse the documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from sentence_experts.corpus.formats.archives import (
    USUAL_EXPANSION,
    Document,
    Passed,
    Source,
    is_packed,
    members,
)
from sentence_experts.corpus.jobs import Job, run_job
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parts import ignored_if_done, mark_done, part_key
from sentence_experts.corpus.workers import Workers
from sentence_experts.progress import Advance, progress
from sentence_experts.storage import PartStore, sha256_file

_PART_BYTES = 8 << 20
_PART_DOCUMENTS = 512


@dataclass(slots=True)
class _Reading:
    """Members of a source that are no documents."""

    ignored: int = 0
    parts: int = 0
    rejections: list[Rejection] = field(default_factory=list)


def parse_sources(sources: list[Source], parts: PartStore, workers: int, full_text: bool = False) -> int:
    """Parse every source into parts, except those that are there; return the number of members that are no
    documents. `full_text` keeps the text of bodies."""
    ignored = 0
    with progress("articles") as advance, Workers(workers) as pool:
        for index, source in enumerate(sources):
            known = ignored_if_done(index, parts)
            if known is None:
                reading = _Reading()
                jobs = _jobs(index, source, parts, full_text, reading, advance)
                for documents in pool.run(run_job, jobs):
                    advance(documents)
                mark_done(index, parts, reading.ignored, reading.parts, reading.rejections)
                known = reading.ignored
            ignored += known
    return ignored


def _jobs(
    index: int, source: Source, parts: PartStore, full_text: bool, reading: _Reading, advance: Advance
) -> Iterator[tuple[Job, PartStore]]:
    """Yield the jobs of a source whose parts are not there."""
    for number, group in enumerate(_groups(source, reading)):
        reading.parts += 1
        if parts.is_done(part_key(index, number)):
            advance(len(group))
        else:
            yield Job(index, source.name, number, tuple(group), full_text), parts


def _groups(source: Source, reading: _Reading) -> Iterator[list[Document]]:
    """The source's documents in groups that depend only on the documents, not on the number of workers."""
    group: list[Document] = []
    size = 0
    for member in members(source):
        if isinstance(member, Passed):
            reading.ignored += 1
        elif isinstance(member, Rejection):
            reading.rejections.append(member)
        else:
            expected = member.size * (USUAL_EXPANSION if is_packed(member.name) else 1)
            if group and (size + expected > _PART_BYTES or len(group) >= _PART_DOCUMENTS):
                yield group
                group, size = [], 0
            group.append(member)
            size += expected
    if group:
        yield group


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
        elif isinstance(member, Rejection):
            digest.update(f"{member.member}\0{member.reason}\0".encode())
    return size, digest.hexdigest()

"""Parse sources into parts: one process reads archives in order, the others parse the documents."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from sentence_experts.compat.multiprocessing import DetachedContext
from sentence_experts.corpus.formats.archives import (
    USUAL_EXPANSION,
    WHOLE_DOCUMENT_BYTES,
    Document,
    Passed,
    Source,
    is_packed,
    members,
)
from sentence_experts.corpus.jobs import Job, follow_parent, run_job
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.parts import REJECTED, part_key, write_rejections
from sentence_experts.errors import InputError, SentenceExpertsError
from sentence_experts.progress import Advance, progress
from sentence_experts.storage import PartStore, read_json, sha256_file, sha256_settings, write_json

_PART_BYTES = 8 << 20
_PART_DOCUMENTS = 512
_QUEUED_PER_WORKER = 2


@dataclass(slots=True)
class _Reading:
    """What a source contains besides documents."""

    ignored: int = 0
    parts: int = 0
    rejections: list[Rejection] = field(default_factory=list)


def parse_sources(sources: list[Source], parts: PartStore, workers: int, full_text: bool = False) -> int:
    """Parse every source into parts, except those that are there; returns the number of members that are no
    documents. `full_text` keeps the text of bodies."""
    ignored = 0
    with ExitStack() as stack:
        advance = stack.enter_context(progress("articles"))
        pool: ProcessPoolExecutor | None = None
        if workers > 1 and any(ignored_if_done(index, parts) is None for index in range(len(sources))):
            # Not fork: the calling program may have threads.
            pool = ProcessPoolExecutor(workers, mp_context=DetachedContext(), initializer=follow_parent)
            stack.enter_context(pool)
        for index, source in enumerate(sources):
            ignored += _parse_source(index, source, parts, pool, workers, full_text, advance)
    return ignored


def _done_file(parts: PartStore, source: int) -> Path:
    return parts.path(f"{source:04d}", ".done.json")


def ignored_if_done(source: int, parts: PartStore) -> int | None:
    """The number of a source's members that are not documents, if all its parts are there and whole."""
    try:
        noted = read_json(_done_file(parts, source))
        content = noted["content"]
        whole = (
            sha256_settings(content) == noted["sha256"]
            and sha256_file(parts.path(f"{source:04d}", REJECTED)) == content["rejected"]
            and all(parts.is_done(part_key(source, number)) for number in range(content["parts"]))
        )
    except (InputError, OSError, KeyError, TypeError):
        return None
    return int(content["ignored"]) if whole else None


def mark_done(source: int, parts: PartStore, ignored: int, count: int, rejections: list[Rejection]) -> None:
    """Note that all `count` parts of a source are there, and what could not be read of it."""
    rejected = parts.path(f"{source:04d}", REJECTED)
    write_rejections(rejected, rejections)
    content = {"ignored": ignored, "parts": count, "rejected": sha256_file(rejected)}
    write_json(_done_file(parts, source), {"content": content, "sha256": sha256_settings(content)})


def _parse_source(
    index: int,
    source: Source,
    parts: PartStore,
    pool: ProcessPoolExecutor | None,
    workers: int,
    full_text: bool,
    advance: Advance,
) -> int:
    if (ignored := ignored_if_done(index, parts)) is not None:
        return ignored
    reading = _Reading()
    running: set[Future[int]] = set()
    try:
        for number, group in enumerate(_groups(source, reading)):
            reading.parts += 1
            job = Job(index, source.name, number, tuple(group), full_text)
            if parts.is_done(part_key(index, job.number)):
                advance(len(job.documents))
            elif pool is None or job.documents[0].stream is not None:
                # A streamed document lasts only until the reader moves on.
                advance(run_job(job, parts))
            else:
                running.add(pool.submit(run_job, job, parts))
            while len(running) >= workers * _QUEUED_PER_WORKER:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    advance(future.result())
        for future in running:
            advance(future.result())
    except BrokenProcessPool as error:
        raise SentenceExpertsError(
            f"{source.name}: a worker process died (out of memory?); the finished parts are kept: "
            "run the same command again, perhaps with `workers=1`"
        ) from error
    mark_done(index, parts, reading.ignored, reading.parts, reading.rejections)
    return reading.ignored


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
            alone = expected > WHOLE_DOCUMENT_BYTES
            if group and (alone or size + expected > _PART_BYTES or len(group) >= _PART_DOCUMENTS):
                yield group
                group, size = [], 0
            group.append(member)
            size += expected
            if alone:
                yield group
                group, size = [], 0
    if group:
        yield group


def source_hash(source: Source) -> tuple[int, str]:
    """(bytes, SHA-256) of a source; a folder is hashed over the names and hashes of its documents."""
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

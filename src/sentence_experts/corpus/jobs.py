"""The unit of work of a parsing process: consecutive documents, which become one part."""

from __future__ import annotations

import gc
import io
import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sentence_experts.corpus.formats.archives import BROKEN_PACKING, Document, is_packed, unpacked
from sentence_experts.corpus.formats.articles import read_articles
from sentence_experts.corpus.paper import Deletion, RecordError, Rejection
from sentence_experts.corpus.parts import CorpusPart
from sentence_experts.storage import PartStore

_OF_ONE_RECORD = frozenset({"no-metadata", "no-pmid"})  # the other records of the document are read
_MAX_NAMED_RECORDS = 1000  # per document; further ones are only counted


@dataclass(frozen=True, slots=True)
class Job:
    """Consecutive documents of one source, which become one part."""

    source: int
    name: str
    number: int
    documents: tuple[Document, ...]
    full_text: bool = False


def run_job(job: Job, parts: PartStore) -> int:
    """Parse a job's documents and write its part; returns the number of documents."""
    part = CorpusPart(job.source, job.number)
    # Nothing here makes reference cycles, and searching many small objects for them takes time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for document in job.documents:
            part.rejections += _parse_document(document, job, part)
        part.write(parts)
    finally:
        if collecting:
            gc.enable()
    return len(job.documents)


def _parse_document(document: Document, job: Job, part: CorpusPart) -> list[Rejection]:
    """Add the records of a document to a part; return those that cannot be read."""
    rejections: list[Rejection] = []
    position = unnamed = 0

    def reject(reason: str, detail: str, record: int | None = None) -> None:
        named = None if record is None else str(record)
        rejections.append(Rejection(job.name, document.name, named, reason, detail))

    try:
        with ExitStack() as stack:
            outcomes = read_articles(_open(document, stack), job.full_text)
            for position, outcome in enumerate(outcomes, start=1):
                may_name = len(rejections) < _MAX_NAMED_RECORDS
                if isinstance(outcome, Deletion):
                    part.delete(outcome, document.name)
                elif not isinstance(outcome, RecordError):
                    part.add(outcome, document.name)
                    dois = [("the paper", outcome.unreadable_doi)]
                    dois += [("a reference", each.unreadable_doi) for each in outcome.citations]
                    for whose, doi in dois if may_name else ():
                        if doi:
                            reject("unreadable-doi", f"of {whose}: {doi}", position)
                elif outcome.reason not in _OF_ONE_RECORD:
                    reject(outcome.reason, outcome.detail)
                elif may_name:
                    reject(outcome.reason, outcome.detail, position)
                else:
                    unnamed += 1
    except RecordError as error:
        reject(error.reason, error.detail)
    except BROKEN_PACKING as error:
        reject("broken-packing", f"{type(error).__name__}: {error}")
    except OSError as error:
        reject("unreadable", error.strerror or str(error))
    except Exception as error:
        # One document must not stop a million others: it is set aside by name.
        reject("error", f"{type(error).__name__}: {' '.join(str(error).split())}"[:300], position + 1)
    if unnamed:
        more = f"{unnamed:,} more records of this document cannot be read, for the same reasons"
        reject("more-of-the-same", more)
    return rejections


def _open(document: Document, stack: ExitStack) -> IO[bytes]:
    """Open a document; one that `is_packed` is decompressed while it is read."""
    stream: IO[bytes] = io.BytesIO(document.data or b"")
    if document.path is not None:
        stream = stack.enter_context(_open_plainly(document.path))
    return unpacked(stream) if is_packed(document.name) else stream


def _open_plainly(path: Path) -> IO[bytes]:
    """Open a regular file; refuse a link or device that took its place since the folder was listed."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "no longer a regular file")
    return os.fdopen(handle, "rb")

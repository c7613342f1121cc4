"""The unit of work of a parsing process: consecutive documents, which become one part."""

from __future__ import annotations

import gc
import io
import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

from sentence_experts.corpus.formats.archives import BROKEN_PACKING, Document, is_packed, unpacked
from sentence_experts.corpus.formats.articles import read_articles
from sentence_experts.corpus.paper import Deletion, RecordError, Rejection
from sentence_experts.corpus.parts import CorpusPart
from sentence_experts.storage import PartStore


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
            _parse_document(document, job, part)
        part.write(parts)
    finally:
        if collecting:
            gc.enable()
    return len(job.documents)


# These reasons concern one record of a document; its other records are read.
_OF_ONE_RECORD = frozenset({"no-metadata", "no-pmid"})
_MAX_NAMED_RECORDS = 1000  # per document; further ones are only counted


def _parse_document(document: Document, job: Job, part: CorpusPart) -> None:
    position = unnamed = 0
    before = len(part.rejections)

    def reject(reason: str, detail: str, record: int | None = None) -> None:
        named = None if record is None else str(record)
        part.rejections.append(Rejection(job.name, document.name, named, reason, detail))

    try:
        with ExitStack() as stack:
            outcomes = read_articles(_content(document, stack), job.full_text)
            for position, outcome in enumerate(outcomes, start=1):
                if isinstance(outcome, RecordError):
                    of_one = outcome.reason in _OF_ONE_RECORD
                    if of_one and len(part.rejections) - before >= _MAX_NAMED_RECORDS:
                        unnamed += 1
                    else:
                        reject(outcome.reason, outcome.detail, position if of_one else None)
                elif isinstance(outcome, Deletion):
                    part.delete(outcome, document.name)
                else:
                    part.add(outcome, document.name)
                    unreadable = [("the paper", outcome.unreadable_doi)]
                    unreadable += [("a reference", each.unreadable_doi) for each in outcome.citations]
                    for whose, doi in unreadable:
                        if doi and len(part.rejections) - before < _MAX_NAMED_RECORDS:
                            reject("unreadable-doi", f"of {whose}: {doi}", position)
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


def _content(document: Document, stack: ExitStack) -> IO[bytes]:
    stream = _stream(document, stack)
    return unpacked(stream) if is_packed(document.name) else stream


def _stream(document: Document, stack: ExitStack) -> IO[bytes]:
    if document.data is not None:
        return io.BytesIO(document.data)
    if document.stream is not None:
        return document.stream
    return stack.enter_context(open(document.path or document.name, "rb", opener=_open_plainly))


def _open_plainly(path: str, flags: int) -> int:
    """Open a regular file; refuse a link or device that took its place since the folder was listed."""
    handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "no longer a regular file")
    return handle

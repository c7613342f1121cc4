"""What one process does at a time: some consecutive documents to one shard."""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import stat
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sentence_experts.corpus.formats.archives import Document
from sentence_experts.corpus.formats.articles import read_articles
from sentence_experts.corpus.formats.packed import is_packed, unpacked
from sentence_experts.corpus.formats.secure_xml import (
    BROKEN_PACKING,
    WHOLE_DOCUMENT_BYTES,
    UnreadableArticleError,
)
from sentence_experts.corpus.paper import Deletion, Rejection
from sentence_experts.corpus.shards import Shard


@dataclass(frozen=True, slots=True)
class Job:
    """Consecutive documents of one source, which become one shard."""

    source: int
    name: str
    number: int
    documents: tuple[Document, ...]


def run_job(job: Job, shards: Path) -> int:
    """Parse a job's documents and write its shard; returns how many documents there were."""
    shard = Shard(job.source, job.number)
    # Nothing here makes cycles, and looking for them among so many small objects takes time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for document in job.documents:
            _parse_document(document, job.name, shard)
        shard.write(shards)
    finally:
        if collecting:
            gc.enable()
    return len(job.documents)


# Rejected for these, an article or record is one of several in its document, and the others go on.
_OF_ONE_RECORD = frozenset({"no-metadata", "no-pmid"})


# So many of them are named of one document; the others are counted.
_NAMED_RECORDS = 1000


def _parse_document(document: Document, source: str, shard: Shard) -> None:
    position = unnamed = 0

    def reject(reason: str, detail: str, record: int | None = None) -> None:
        named = None if record is None else str(record)
        shard.rejections.append(Rejection(source, document.name, named, reason, detail))

    before = len(shard.rejections)

    try:
        with ExitStack() as stack:
            for position, outcome in enumerate(read_articles(_content(document, stack)), start=1):
                if isinstance(outcome, UnreadableArticleError):
                    of_one = outcome.reason in _OF_ONE_RECORD
                    if of_one and len(shard.rejections) - before >= _NAMED_RECORDS:
                        unnamed += 1
                    else:
                        reject(outcome.reason, outcome.detail, position if of_one else None)
                elif isinstance(outcome, Deletion):
                    shard.delete(outcome, document.name)
                else:
                    shard.add(outcome, document.name)
    except UnreadableArticleError as error:
        reject(error.reason, error.detail)
    except BROKEN_PACKING as error:
        reject("broken-packing", f"{type(error).__name__}: {error}")
    except OSError as error:
        reject("unreadable", error.strerror or str(error))
    except Exception as error:
        # One document may not stop a million others: it is named, with what went wrong, and the rest goes on.
        reject("error", f"{type(error).__name__}: {' '.join(str(error).split())}"[:300], position + 1)
    if unnamed:
        reject("more-of-the-same", f"{unnamed:,} more of its records cannot be read, for the same reasons")


def _content(document: Document, stack: ExitStack) -> bytes | IO[bytes]:
    if is_packed(document.name):
        return unpacked(io.BytesIO(document.data) if document.data is not None else _stream(document, stack))
    if document.data is not None:
        return document.data
    stream = _stream(document, stack)
    large = document.stream is not None or document.size > WHOLE_DOCUMENT_BYTES
    return stream if large else stream.read(WHOLE_DOCUMENT_BYTES + 1)


def _stream(document: Document, stack: ExitStack) -> IO[bytes]:
    if document.stream is not None:
        return document.stream
    return stack.enter_context(open(document.path or document.name, "rb", opener=_open_plainly))


def _open_plainly(path: str, flags: int) -> int:
    """Open a regular file and nothing that took its place since the folder was listed."""
    handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "no longer a regular file")
    return handle


def follow_parent() -> None:
    """End this worker when the program that started it is gone, even if it was killed."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

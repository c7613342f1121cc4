"""What one process does at a time: some consecutive documents to one shard."""

from __future__ import annotations

import gc
import multiprocessing
import os
import stat
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sentence_experts.corpus.formats.archives import Document
from sentence_experts.corpus.formats.front import UnreadableArticleError
from sentence_experts.corpus.formats.jats import WHOLE_DOCUMENT_BYTES, read_articles
from sentence_experts.corpus.paper import Rejection
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


def _parse_document(document: Document, source: str, shard: Shard) -> None:
    position = 0
    try:
        with ExitStack() as stack:
            for position, outcome in enumerate(read_articles(_content(document, stack)), start=1):
                if isinstance(outcome, UnreadableArticleError):
                    record = str(position) if outcome.reason == "no-metadata" else None
                    shard.rejections.append(
                        Rejection(source, document.name, record, outcome.reason, outcome.detail)
                    )
                else:
                    shard.add(outcome, document.name)
    except OSError as error:
        detail = error.strerror or str(error)
        shard.rejections.append(Rejection(source, document.name, None, "unreadable", detail))
    except Exception as error:
        # One document may not stop a million others: it is named, with what went wrong, and the rest goes on.
        detail = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        shard.rejections.append(Rejection(source, document.name, str(position + 1), "error", detail))


def _content(document: Document, stack: ExitStack) -> bytes | IO[bytes]:
    if document.data is not None:
        return document.data
    if document.stream is not None:
        return document.stream
    file = stack.enter_context(open(document.path or document.name, "rb", opener=_open_plainly))  # noqa: SIM115
    return file if document.size > WHOLE_DOCUMENT_BYTES else file.read(WHOLE_DOCUMENT_BYTES + 1)


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

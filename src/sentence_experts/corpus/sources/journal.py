"""The answers of services to a fetch: one SQLite file, whole after every answer."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sentence_experts.errors import InputError, SentenceExpertsError
from sentence_experts.storage import locked

MEMORY = Path(":memory:")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a service to one request; without a body if it has no such thing, as the note says."""

    body: bytes | None
    note: str = ""


class Journal:
    """The answers so far, by request; used by one process at a time."""

    def __init__(self, database: sqlite3.Connection) -> None:
        # One process at a time (`locked`): no shared memory beside the file.
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(
            "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, body BLOB, note TEXT NOT NULL)"
        )
        self._database = database

    def get(self, key: str) -> Answer | None:
        """Return the stored answer to a request."""
        row = self._database.execute("SELECT body, note FROM answers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        body, note = row
        return Answer(None if body is None else zlib.decompress(body), note)

    def body(self, key: str) -> bytes | None:
        """Return the body of a stored answer; None without an answer or body."""
        answer = self.get(key)
        return None if answer is None else answer.body

    def put(self, key: str, body: bytes | None, note: str = "") -> None:
        """Store an answer; it is on disk when this returns."""
        packed = None if body is None else zlib.compress(body, 6)
        with self._database:
            self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, packed, note))


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Open the journal in a file, which is made if missing; `MEMORY` is one without a file.

    Raises:
        InputError: the file is not a journal, or another process is using it.
        SentenceExpertsError: the disk is full, or the folder cannot be written to.
    """
    with nullcontext() if path == MEMORY else locked(path, "fetch"):
        try:
            with closing(sqlite3.connect(path)) as database:
                yield Journal(database)
        except sqlite3.OperationalError as error:
            raise SentenceExpertsError(
                f"{path}: {error}; what was fetched before is kept: make room, or write elsewhere, then "
                "give the same command again"
            ) from error
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{path} cannot be read as the journal of a fetch ({error}); move it away to start over"
            ) from error

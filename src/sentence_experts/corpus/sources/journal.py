"""The answers of services to a fetch: one SQLite file, whole after every answer."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from sentence_experts.errors import InputError, SentenceExpertsError
from sentence_experts.storage import locked

MEMORY = Path(":memory:")


class Journal:
    """The answers so far, by request; used by one process at a time."""

    def __init__(self, database: sqlite3.Connection) -> None:
        # One process at a time (`locked`): no shared memory beside the file.
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
            database.execute(f"PRAGMA {setting}")
        database.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, body BLOB NOT NULL)")
        self._database = database

    def get(self, key: str) -> bytes | None:
        """Return the stored answer to a request; None if there is none, or it is damaged."""
        row = self._database.execute("SELECT body FROM answers WHERE key = ?", (key,)).fetchone()
        try:
            return None if row is None else zlib.decompress(row[0])
        except zlib.error:
            return None

    def put(self, key: str, body: bytes) -> None:
        """Store an answer; it is on disk when this returns."""
        with self._database:
            row = (key, zlib.compress(body, 6))
            self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", row)

    def forget(self, prefix: str) -> None:
        """Remove the answers whose keys begin with this."""
        with self._database:
            self._database.execute("DELETE FROM answers WHERE substr(key, 1, ?) = ?", (len(prefix), prefix))


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

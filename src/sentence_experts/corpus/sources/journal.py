"""The answers of services to a fetch: one SQLite file, whole after every answer."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sentence_experts.errors import InputError, SentenceExpertsError
from sentence_experts.storage import locked

MEMORY = Path(":memory:")
_FORMAT = 2
# What format 1 stored where the answer of a service was an error under status 200: papers that iCite "does
# not know", and searches without a result. They are removed, and requested again.
_DOUBTFUL = """DELETE FROM answers WHERE (key LIKE 'icite/%' AND body IS NULL)
    OR (key LIKE 'esearch/%' AND (body IS NULL OR body = ?))"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a service to one request; without a body if it has no such thing, as the note says."""

    key: str
    body: bytes | None
    note: str = ""


class Journal:
    """The answers so far, by request; used by one process at a time."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self.path = path

    def get(self, key: str) -> Answer | None:
        """The stored answer to a request."""
        row = self._database.execute("SELECT body, note FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else _answer(key, *row)

    def put(self, key: str, body: bytes | None, note: str = "") -> Answer:
        """Store an answer; it is on disk when this returns."""
        packed = None if body is None else zlib.compress(body, 6)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", (key, packed, note, now)
            )
        return Answer(key, body, note)

    def answers(self, prefix: str) -> Iterator[Answer]:
        """The answers whose keys begin with `prefix`, by key."""
        rows = self._database.execute(
            "SELECT key, body, note FROM answers WHERE key >= ? AND key < ? ORDER BY key",
            (prefix, prefix + "\U0010ffff"),
        )
        for key, body, note in rows:
            yield _answer(key, body, note)


def _answer(key: str, body: bytes | None, note: str) -> Answer:
    return Answer(key, None if body is None else zlib.decompress(body), note)


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Open the journal in a file, which is made if missing; `MEMORY` is one without a file.

    Raises:
        InputError: the file is not a journal, or another process is using it.
        SentenceExpertsError: the disk is full, or the folder cannot be written to.
    """
    with nullcontext() if path == MEMORY else locked(path, "fetch"):
        database = None
        try:
            database = sqlite3.connect(path)
            _prepare(database, path)
            yield Journal(database, path)
        except sqlite3.OperationalError as error:
            raise SentenceExpertsError(
                f"{path}: {error}; what was fetched before is kept: make room, or write elsewhere, then "
                "give the same command again"
            ) from error
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{path} cannot be read as the journal of a fetch ({error}); move it away to start over"
            ) from error
        finally:
            if database is not None:
                database.close()


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    # One process at a time (`locked`): no shared memory beside the file.
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version not in range(_FORMAT + 1):
        raise InputError(f"{path} is of format {version}, this version writes {_FORMAT}: write elsewhere")
    with database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, body BLOB, note TEXT NOT NULL, "
            "fetched TEXT NOT NULL)"
        )
        if version == 1:
            database.execute(_DOUBTFUL, (zlib.compress(b"[]", 6),))
        database.execute(f"PRAGMA user_version = {_FORMAT}")

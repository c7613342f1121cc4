"""The journal: whole after every answer, one writer at a time, one line when it cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.replay_server import stored
from sentence_experts.corpus.sources.journal import open_journal
from sentence_experts.errors import InputError, SentenceExpertsError


def test_answers_come_back_as_they_were_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal.sqlite"
    with open_journal(path) as journal:
        journal.put("b/2", b"two \xff")
        journal.put("b/10", b"")
    with open_journal(path) as journal:
        assert journal.get("b/2") == b"two \xff"
        assert journal.get("b") is None
        assert list(stored(journal, "b/")) == ["b/10", "b/2"]
        assert len(stored(journal)) == 2
    assert [file.name for file in path.parent.iterdir()] == ["journal.sqlite"]


def test_a_damaged_answer_is_none(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with open_journal(path) as journal:
        journal.put("a", b"a long answer " * 10)
        whole = journal._database.execute("SELECT body FROM answers").fetchone()[0]
        for place in range(len(whole)):
            body = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
            journal._database.execute("UPDATE answers SET body = ?", (body,))
            assert journal.get("a") in (None, b"a long answer " * 10)
        journal._database.execute("UPDATE answers SET body = ?", (whole[:-1],))
        assert journal.get("a") is None


def test_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with (
        open_journal(path),
        pytest.raises(InputError, match="is in use by process"),
        open_journal(path) as other,
    ):
        other.put("a", b"")


def test_another_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"no database, but somebody's work" * 100)
    with pytest.raises(InputError, match="cannot be read as the journal"), open_journal(path):
        pass
    assert path.read_bytes().startswith(b"no database")


def test_a_full_disk_is_one_line_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with open_journal(path) as journal:
        journal.put("before", b"kept")

    def fill_the_disk() -> None:
        with open_journal(path) as journal:
            # SQLite's own limit gives the error that a full disk gives.
            journal._database.execute("PRAGMA max_page_count = 8")
            for number in range(100):
                journal.put(str(number), os.urandom(4000))

    with pytest.raises(SentenceExpertsError, match=r"full.*kept: make room"):
        fill_the_disk()
    with open_journal(path) as journal:
        assert journal.get("before") == b"kept"
        assert journal.get("0") is not None

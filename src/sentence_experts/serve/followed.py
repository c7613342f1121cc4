"""A library that stays open: a file or folder of papers, and a corpus that follows it while it is served."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sentence_experts.corpus.building import PARTIAL
from sentence_experts.corpus.config import ImportConfig
from sentence_experts.corpus.corpus_folder import MANIFEST, CorpusFolder, following
from sentence_experts.corpus.importing import gather_sources, import_corpus
from sentence_experts.corpus.paper import RecordError
from sentence_experts.corpus.record_files import RECORD_SUFFIXES, find_record_files, read_records
from sentence_experts.corpus.user_tables import count_broken_rows, is_table_of_papers
from sentence_experts.errors import InputError, SentenceExpertsError, brief
from sentence_experts.storage import RECORD, FileState, InUseError, file_state, read_record

logger = logging.getLogger(__name__)

WATCH_SECONDS = 2.0  # time between looks; what has changed must be the same in two of them
_BROKEN = "broken-"  # begins the reasons of records that a whole file would not have
_LONGEST_PAUSE = 300.0  # seconds between two attempts to read what could not be read, which double


class FollowedSource:
    """A file of records, or a folder of records or articles, and its corpus in NAME.corpus beside it.

    Attributes:
        path: the file or folder.
        folder: folder of the corpus; vectors of papers that stay are used again.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))
        self.folder = following(self.path)
        self._imported = self._seen = self.state()
        self._failed: list[tuple[str, FileState]] | None = None
        self._attempts, self._next = 0, 0.0  # since what failed changed, and the time of the next one

    def state(self) -> list[tuple[str, FileState]]:
        """Return the states of all files, which change with what is in them."""
        states = []
        for file in (self.path, *(self.path.rglob("*") if self.path.is_dir() else ())):
            with suppress(OSError):
                states.append((str(file), file_state(file)))
        return sorted(states)

    def corpus(self) -> CorpusFolder:
        """Return the corpus of what the source holds now; it is imported unless it was before.

        Raises:
            InputError: it holds nothing that can be read, or the folder holds a corpus, finished or not, that
                was made otherwise; the corpus stays as it was.
        """
        record, is_same = read_record(self.folder / RECORD), False
        follows = record is not None and self._follows(record["settings"])
        if is_finished := (self.folder / MANIFEST).is_file():
            before = CorpusFolder.open(self.folder)
            read = gather_sources([self.path], ImportConfig.of(None), None, None)
            is_same = before.manifest["sources"] == read.described
            if is_same and follows:
                return before
        if (record or is_finished) and not (is_same or follows):
            raise InputError(
                f"{self.folder} was not imported from {self.path} alone, or with other settings: serve that "
                "folder itself, or import this path into it again, with `overwrite`"
            )
        return import_corpus([self.path], self.folder, overwrite=self.folder.exists())

    def _follows(self, settings: Mapping[str, Any]) -> bool:
        """Return whether a corpus was imported from the path alone, as far as its settings tell."""
        if "followed" in settings:
            return bool(settings["followed"])
        # Of an earlier version; the names of a folder's files come and go.
        names = [each["name"] for each in settings.get("sources", ()) if isinstance(each, dict)]
        return settings.keys() == {"sources"} and (self.path.is_dir() or names == [self.path.name])

    def first_corpus(self) -> CorpusFolder:
        """Return the corpus, as `corpus` does, when no other server is importing it."""
        waits = False
        while True:
            try:
                return self.corpus()
            except InUseError as error:
                if not waits:
                    logger.info(f"waiting: {error}")
                waits = True
                sleep(WATCH_SECONDS)

    def _count_broken(self) -> int:
        """Count the records that cannot be read, as at the end of a file that is being written."""
        if is_table_of_papers(self.path):
            return count_broken_rows(self.path)
        if self.path.is_dir() or not self.path.name.lower().endswith(RECORD_SUFFIXES):
            return 0
        files = find_record_files(self.path, None)
        errors = [
            each for f in files for each in read_records(f.format, f.path) if isinstance(each, RecordError)
        ]
        return sum(each.reason.startswith(_BROKEN) for each in errors)

    def _count_broken_before(self) -> int:
        """Count those of the corpus as it was imported."""
        if not (self.folder / MANIFEST).is_file():
            return 0
        rejected = CorpusFolder.open(self.folder).manifest["counts"]["rejected"]
        return sum(number for reason, number in rejected.items() if reason.startswith(_BROKEN))

    def renew_if_changed(self, renew: Callable[[CorpusFolder], Any]) -> CorpusFolder | None:
        """If the source has changed and rests, call `renew` with its new corpus, and return that.

        What fails is tried again later: another server may have been importing the same source.

        Raises:
            InputError: it is not there, or more of it is broken than before.
        """
        state, seen = self.state(), self._seen
        self._seen = state
        again = state == self._failed
        if state == self._imported or state != seen or (again and monotonic() < self._next):
            return None
        self._failed, self._attempts = state, self._attempts + 1 if again else 1
        try:
            if not self.path.exists():
                raise InputError(f"{self.path}: not there")
            if (broken := self._count_broken()) > (before := self._count_broken_before()):
                raise InputError(f"{self.path}: {broken:,} broken records, and {before:,} before")
            corpus = self.corpus()
            renew(corpus)
        except Exception:
            self._next = monotonic() + min(WATCH_SECONDS * 2**self._attempts, _LONGEST_PAUSE)
            raise
        self._imported, self._failed = state, None
        return corpus

    async def watch(self, renew: Callable[[CorpusFolder], Any]) -> None:
        """Call `renew`, in a thread, with each new corpus for as long as the server runs."""
        warned = ""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                corpus = await asyncio.to_thread(self.renew_if_changed, renew)
                if corpus is not None:
                    logger.info(f"{self.path}: {corpus.manifest['counts']['papers']:,} papers now")
                    warned = ""
            except Exception as error:
                text = str(error) if isinstance(error, SentenceExpertsError) else brief(error)
                if text != warned:  # not at every attempt
                    logger.warning(f"searches continue with the papers from before: {text}")
                warned = text


def is_source(path: Path) -> bool:
    """Return whether a path holds papers, and is no corpus: a file, or a folder with files in it."""
    if path.is_file():
        return True
    return (
        path.is_dir()
        and not any((path / name).exists() for name in (MANIFEST, PARTIAL))
        and any(path.iterdir())
    )

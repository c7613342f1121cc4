"""Complete the papers of an import that lack an abstract, by their identifiers, from OpenAlex.

OpenAlex is reached through the client of `fetch_corpus`, and its answers are kept in a journal in the
corpus's folder, so that an interrupted run requests nothing twice.
"""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sentence_experts.corpus.building import JOURNAL, Sources, build_corpus
from sentence_experts.corpus.config import ImportConfig
from sentence_experts.corpus.corpus_folder import PAPERS, CorpusFolder
from sentence_experts.corpus.fetching import FetchedPapers, open_client, openalex_key
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.sources.client import Client, FailedError, Names
from sentence_experts.corpus.sources.openalex import OpenAlexSource
from sentence_experts.progress import progress
from sentence_experts.storage import Output, sha256_text
from sentence_experts.storage.output import State

logger = logging.getLogger(__name__)

_KINDS = ("openalex", "doi", "pmid", "pmcid")
"""Kinds of names to look papers up by, the best one first."""
_PER_QUERY = 50
_ENDS_VALUE = re.compile(r"[,|\s]")  # in a query


def build_completed(place: Output, state: State, read: Sources, config: ImportConfig) -> CorpusFolder:
    """Build a corpus of sources, and complete its papers that lack an abstract.

    Raises:
        UsageError: OpenAlex needs a key, and there is none.
        UnreachableError: no connection; the corpus is there without the abstracts.
    """
    email, key = config.email or os.environ.get("NCBI_EMAIL"), openalex_key(config.api_key)
    with open_client(config.services, place.final / JOURNAL, email, key) as client:
        journal = client.journal
        key = f"lacking/{sha256_text(read.request())[:16]}"
        listed = journal.get(key)  # by a run before
        if listed is None:
            if state != "finished":
                build_corpus(place, read, config.workers, memory=config.memory)
                state = "finished"
            elif place.result["request"] != read.request():  # completed, and the journal was removed
                return CorpusFolder.open(place.path)
            listed = json.dumps(_lacking(place.path)).encode()
            journal.put(key, listed)
        lacking: list[Names] = json.loads(listed)
        source = OpenAlexSource(client, keep_retracted=True)
        found = _find(source, client, lacking)
        whole = read.adding(FetchedPapers(source, found, whole=False))
        if state == "finished":
            if place.result["request"] == whole.request():
                return CorpusFolder.open(place.path)
            place.reopen()
        completion = Completion(lacking, len(found), client.set_aside)
        return build_corpus(place, whole, config.workers, completion, config.memory)


@dataclass(frozen=True)
class Completion:
    """The requests to OpenAlex and its answers (a `building.Fetch`).

    Attributes:
        lacking: the names of each paper without an abstract.
        found: number of records that OpenAlex has of them.
        set_aside: the requests that failed.
    """

    lacking: list[Names]
    found: int
    set_aside: list[Rejection]

    def rejections(self) -> list[Rejection]:
        """Return the requests that failed; the next run tries again."""
        return list(dict.fromkeys(self.set_aside))

    def finish(self, out: Path) -> tuple[list[str], dict[str, Any]]:
        """Count the papers that have an abstract now."""
        papers = pq.read_table(out / PAPERS, columns=list(_KINDS), filters=[("abstract", "!=", "")])
        known = {kind: set(papers[kind].to_pylist()) for kind in _KINDS}
        completed = sum(any(name in known[kind] for kind, name in one.items()) for one in self.lacking)
        asked = sum(map(len, _names_used(self.lacking).values()))
        text = f"{completed:,} of {len(self.lacking):,} papers without an abstract have one from OpenAlex now"
        if without := len(self.lacking) - asked:
            text += f"; {without:,} have no identifier to look them up by"
        if self.set_aside:
            text += f"; {len(self.set_aside):,} requests failed: give the same command again"
        logger.info(text)
        counts = {"lacking": len(self.lacking), "asked": asked, "found": self.found}
        return [], {"completed": {"from": "OpenAlex", **counts, "completed": completed}}


def _lacking(corpus: Path) -> list[Names]:
    """Return the names of each paper of a corpus that has no abstract."""
    papers = pq.read_table(corpus / PAPERS, columns=["abstract", *_KINDS])
    rows = papers.filter(papers["abstract"].is_null()).select(_KINDS).to_pylist()
    return [{kind: name for kind, name in row.items() if name} for row in rows]


def _find(source: OpenAlexSource, client: Client, lacking: list[Names]) -> list[str]:
    """Return the ids of the records of the papers, query by query; a query that fails is set aside."""
    queries = [(kind, batch) for kind, names in _names_used(lacking).items() for batch in _batches(names)]
    found: set[str] = set()
    with progress("papers without an abstract, from OpenAlex", len(queries)) as advance:
        for kind, batch in queries:
            try:
                found.update(source.find(f"{kind}:{'|'.join(batch)}"))
            except FailedError as error:
                more = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
                named = f"{kind} {batch[0]}{more}"
                client.set_aside.append(Rejection("openalex", None, named, "not-fetched", str(error)))
            advance()
    return sorted(found)


def _batches(names: set[str]) -> list[list[str]]:
    ordered = sorted(names)
    return [ordered[start : start + _PER_QUERY] for start in range(0, len(ordered), _PER_QUERY)]


def _names_used(lacking: list[Names]) -> dict[str, set[str]]:
    """Return the names to look papers up by, one per paper, by their kind."""
    by_kind: dict[str, set[str]] = {kind: set() for kind in _KINDS}
    for names in lacking:
        usable = (kind for kind in _KINDS if kind in names and not _ENDS_VALUE.search(names[kind]))
        if kind := next(usable, None):
            by_kind[kind].add(names[kind])
    return by_kind

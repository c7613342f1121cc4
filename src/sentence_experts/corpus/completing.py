"""Complete the papers of an import that lack an abstract, by their identifiers, from a service.

The service is reached through the clients of `fetch_corpus`, and its answers are kept in a journal in the
corpus's folder, so that an interrupted run requests nothing twice.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sentence_experts.corpus.building import JOURNAL, Sources, build_corpus
from sentence_experts.corpus.config import FetchConfig, ImportConfig
from sentence_experts.corpus.corpus_folder import PAPERS, CorpusFolder
from sentence_experts.corpus.fetched_tables import FetchedPapers
from sentence_experts.corpus.fetching import RECORD_SOURCES, open_requests, openalex_key
from sentence_experts.corpus.paper import Rejection
from sentence_experts.corpus.sources.journal import Journal, open_journal
from sentence_experts.corpus.sources.record_sources import Names
from sentence_experts.corpus.sources.requests import Requests, batches_of
from sentence_experts.progress import progress
from sentence_experts.storage import Output, sha256_text
from sentence_experts.storage.output import State

logger = logging.getLogger(__name__)

SERVICES = {"europepmc": "Europe PMC", "openalex": "OpenAlex"}
_KINDS = ("pmid", "pmcid", "doi", "openalex")
_LOOKUP_KINDS = {"europepmc": ("pmid", "pmcid", "doi"), "openalex": ("openalex", "doi", "pmid", "pmcid")}
"""Kinds of names to look papers up by, the best one first."""
_PER_QUERY = 50
# What would end a text or a value in a query.
_NO_DOI = {"europepmc": re.compile(r'["\\\s]'), "openalex": re.compile(r"[,|\s]")}


def build_completed(
    place: Output, state: State, read: Sources, config: ImportConfig, service: str
) -> CorpusFolder:
    """Build a corpus of sources, and complete its papers that lack an abstract.

    Raises:
        UsageError: OpenAlex needs a key, and there is none.
        UnreachableError: no connection; the corpus is there without the abstracts.
    """
    key = openalex_key(config.api_key) if service == "openalex" else None
    fetch_config = FetchConfig.of(
        source=service, citations=(), services=config.services, keep_retracted=True, api_key=key,
        email=config.email or os.environ.get("NCBI_EMAIL"),
    )  # fmt: skip
    with open_journal(place.final / JOURNAL) as journal, open_requests(fetch_config, journal) as requests:
        lacking = _listed(journal, read)
        if lacking is None:
            if state != "finished":
                build_corpus(place, read, config.workers, memory=config.memory)
                state = "finished"
            elif place.result["request"] != read.request():  # completed, and the journal was removed
                return CorpusFolder.open(place.path)
            lacking = _lacking(place.path)
            _list(journal, read, lacking)
        source = RECORD_SOURCES[service](requests, fetch_config)
        found = sorted(set(chain.from_iterable(_found(requests, source.find, service, lacking))))
        extra = FetchedPapers(source, found, whole=False)
        described = [*read.described, *extra.described()]
        whole = replace(read, extras=[*read.extras, extra], described=described)
        if state == "finished":
            if place.result["request"] == whole.request():
                return CorpusFolder.open(place.path)
            place.reopen()
        completion = Completion(service, lacking, len(found), requests.set_aside)
        return build_corpus(place, whole, config.workers, completion, config.memory)


@dataclass(frozen=True)
class Completion:
    """What was requested of a service, and what it answered (a `building.Fetch`).

    Attributes:
        service: a key of `SERVICES`.
        lacking: the names of each paper without an abstract.
        found: number of records that the service has of them.
        set_aside: the requests that failed.
    """

    service: str
    lacking: list[Names]
    found: int
    set_aside: list[Rejection]

    def rejections(self) -> list[Rejection]:
        """Requests that failed; the next run tries again."""
        return list(dict.fromkeys(self.set_aside))

    def finish(self, out: Path) -> dict[str, Any]:
        """Count the papers that have an abstract now."""
        papers = pq.read_table(out / PAPERS, columns=list(_KINDS), filters=_HAS_ABSTRACT)
        known = {kind: set(papers[kind].to_pylist()) for kind in _KINDS}
        completed = sum(any(name in known[kind] for kind, name in one.items()) for one in self.lacking)
        looked_up = sum(len(names) for _, names in _names_used(self.service, self.lacking))
        service = SERVICES[self.service]
        without = len(self.lacking) - looked_up
        logger.info(
            f"{completed:,} of {len(self.lacking):,} papers without an abstract have one from {service} now"
            + (f"; {without:,} have no identifier to look them up by" if without else "")
            + (
                f"; {len(self.set_aside):,} requests failed: give the same command again"
                if self.set_aside
                else ""
            )
        )
        counts = {
            "lacking": len(self.lacking),
            "asked": looked_up,
            "found": self.found,
            "completed": completed,
        }
        return {"tables": {}, "completed": {"from": service, **counts}}


_HAS_ABSTRACT = [("abstract", "!=", "")]


def _lacking(corpus: Path) -> list[Names]:
    """The names of each paper of a corpus that has no abstract."""
    papers = pq.read_table(corpus / PAPERS, columns=["abstract", *_KINDS])
    rows = papers.filter(papers["abstract"].is_null()).select(_KINDS).to_pylist()
    return [{kind: name for kind, name in row.items() if name} for row in rows]


def _key(read: Sources) -> str:
    return f"lacking/{sha256_text(read.request())[:16]}"


def _listed(journal: Journal, read: Sources) -> list[Names] | None:
    """The papers of these sources that lack an abstract, if a run before has listed them."""
    answer = journal.get(_key(read))
    return None if answer is None or answer.body is None else json.loads(answer.body)


def _list(journal: Journal, read: Sources, lacking: list[Names]) -> None:
    journal.put(_key(read), json.dumps(lacking).encode())


def _found(requests: Requests, find: Any, service: str, lacking: list[Names]) -> Iterator[list[str]]:
    """The ids of the service's records of the papers, query by query."""
    queries = list(_queries(service, lacking))
    with progress(f"papers without an abstract, from {SERVICES[service]}", len(queries)) as advance:
        for ids in requests.in_turn(service, queries, find):
            yield ids
            advance()
    requests.online = False


def _queries(service: str, lacking: list[Names]) -> Iterator[tuple[str, str]]:
    """Queries for the papers by one name of each, with their own names for messages."""
    for kind, values in _names_used(service, lacking):
        for name, batch in batches_of(values, _PER_QUERY):
            yield f"{kind} {name}", _QUERIES[service](kind, batch)


def _names_used(service: str, lacking: list[Names]) -> Iterator[tuple[str, list[str]]]:
    """The kind of name and the names to look papers up by, one per paper."""
    by_kind: dict[str, set[str]] = {kind: set() for kind in _LOOKUP_KINDS[service]}
    for names in lacking:
        for kind, values in by_kind.items():
            if kind in names and not (kind == "doi" and _NO_DOI[service].search(names[kind])):
                values.add(names[kind])
                break
    for kind, values in by_kind.items():
        yield kind, sorted(values)


def _europe_pmc_query(kind: str, values: list[str]) -> str:
    terms = {"pmid": "(EXT_ID:{} AND SRC:MED)", "pmcid": "PMCID:{}", "doi": 'DOI:"{}"'}
    return " OR ".join(terms[kind].format(value) for value in values)


def _openalex_query(kind: str, values: list[str]) -> str:
    return f"{kind}:{'|'.join(values)}"


_QUERIES = {"europepmc": _europe_pmc_query, "openalex": _openalex_query}

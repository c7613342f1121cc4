"""PubMed's baseline and update files as a source: a whole copy of PubMed on disk, without a search service.

A domain's query is one or more MeSH headings (names, unique ids or tree numbers, separated by `;`), each with
the headings under it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cached_property
from typing import Any

from typing_extensions import override

from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.formats.mesh import MeshTree, read_descriptors, under_any
from sentence_experts.corpus.paper import Citation, Paper, Rejection
from sentence_experts.corpus.sources.pubmed_files import download, select_papers
from sentence_experts.corpus.sources.record_sources import Names, Provenance, RecordSource
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.errors import UsageError
from sentence_experts.storage import sha256_text


class PubmedFilesSource(RecordSource):
    """Titles, abstracts, MeSH headings and reference lists from PubMed's files. Ids are PMIDs."""

    def __init__(self, requests: Requests, config: FetchConfig) -> None:
        if config.pubmed_files is None or config.mesh_descriptors is None:
            raise UsageError(
                "source pubmed-files needs pubmed_files (a folder for the files) and mesh_descriptors (NLM's "
                "descriptor file, desc20XX.xml)"
            )
        self._requests, self._config, self._folder = requests, config, config.pubmed_files
        self._tree = MeshTree(read_descriptors(config.mesh_descriptors))

    @override
    def count(self, query: str) -> int:
        self._matcher(query)
        raise UsageError(
            "`dry_run` is not available for source pubmed-files, whose files must be read to count"
        )

    @override
    def find(self, query: str) -> list[str]:
        matches = self._matcher(query)
        answers = self._requests.journal.answers(f"{self._prefix}/")
        papers = (_paper(answer.body or b"{}") for answer in answers)
        pmids = [paper.pmid for paper in papers if paper.pmid and any(map(matches, paper.mesh))]
        return sorted(pmids, key=int)

    @override
    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        for pmid in ids:
            answer = self._requests.journal.get(f"{self._prefix}/{pmid}")
            if answer is not None and answer.body:
                paper = _paper(answer.body)
                if self._config.keep_retracted or not paper.retracted:
                    yield pmid, paper

    @override
    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        for pmid, _ in self.papers(ids):
            yield pmid, {"pmid": pmid}

    @override
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        for pmid, _ in self.papers(ids):
            answer = self._requests.journal.get(f"{self._prefix}/{pmid}")
            digest = hashlib.sha256((answer and answer.body) or b"").hexdigest()
            yield pmid, f"{self._requests.services.pubmed_files.url}/", None, None, digest

    @override
    def left_out(self, ids: list[str]) -> Iterator[Rejection]:
        known = {pmid for pmid, _ in self.papers(ids)}
        for pmid in ids:
            if pmid not in known:
                yield Rejection("pubmed-files", None, pmid, "retracted", "PubMed marks it as retracted")

    @cached_property
    def _prefix(self) -> str:
        """The prefix of the journal's keys for these headings, years and files, which are read once."""
        journal, base = self._requests.journal, self._requests.services.pubmed_files.url
        if not any(self._folder.rglob("pubmed*.xml.gz")):
            for part in ("baseline", "updatefiles"):
                download(self._requests.client, f"{base}/{part}/", self._folder / part)
        files = sorted((file.name, file.stat().st_size) for file in self._folder.rglob("pubmed*.xml.gz"))
        request = json.dumps([self._config.domains, self._config.years, files], sort_keys=True)
        prefix = f"pubmed-files/{sha256_text(request)[:16]}"
        if journal.get(f"{prefix}-done") is None:
            headings = [heading for query in self._config.domains.values() for heading in _headings(query)]
            for paper in select_papers(self._folder, headings, self._config.years, self._tree):
                if paper.pmid:
                    body = json.dumps(asdict(paper), ensure_ascii=False).encode()
                    journal.put(f"{prefix}/{paper.pmid}", body)
            journal.put(f"{prefix}-done", b"")
        return prefix

    def _matcher(self, query: str) -> Callable[[str], bool]:
        return under_any(_headings(query), self._tree)


def _headings(query: str) -> list[str]:
    return [part.strip() for part in query.split(";") if part.strip()]


def _paper(body: bytes) -> Paper:
    """A paper as `asdict` wrote it."""
    fields: dict[str, Any] = json.loads(body)
    for name in ("citations", "retracts"):
        fields[name] = tuple(Citation(**one) for one in fields.get(name, ()))
    for name in ("subjects", "mesh", "keywords"):
        fields[name] = tuple(fields.get(name, ()))
    return Paper(**fields)

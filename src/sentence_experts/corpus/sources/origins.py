"""Where articles may come from, each with the same few questions: PMC, PubMed, Europe PMC."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Protocol

from typing_extensions import override

from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.formats.archives import Document
from sentence_experts.corpus.paper import Paper, Rejection
from sentence_experts.corpus.sources.entrez import Entrez
from sentence_experts.corpus.sources.europepmc import EuropePmc
from sentence_experts.corpus.sources.pmc import LICENCES, Bucket, Version, converted
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.progress import Advance

Names = dict[str, str]
"""The ids that a paper goes by: `pmid`, `pmcid`, `doi`."""
Provenance = tuple[str, str, str | None, str | None, str]
"""record, address, version, licence code, SHA-256"""


class Origin(Protocol):
    """A source of articles; `ids` are its own."""

    def count(self, query: str) -> int:
        """How many articles a query finds."""

    def examples(self, query: str) -> list[str]:
        """The titles of a few of them."""

    def find(self, query: str) -> list[str]:
        """The ids that a query finds."""

    def cost(self, articles: int) -> tuple[int, float]:
        """(requests, seconds) that fetching so many takes."""

    def fetch(self, ids: list[str], advance: Advance) -> None:
        """Fetch articles into the journal."""

    def documents(self, ids: list[str]) -> Iterator[Document]:
        """The XML of those that were fetched and may be kept."""

    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        """Those that come otherwise than as XML, with their ids."""

    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        """The names of those that were kept."""

    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        """Where each that was kept came from."""

    def left_out(self, ids: list[str]) -> Iterator[Rejection]:
        """Those that were not there, or that the plan leaves out."""


class PmcOrigin(Origin):
    """Whole open-access articles: found by Entrez, read from the bucket. Ids are PMCIDs."""

    def __init__(self, requests: Requests, plan: FetchConfig) -> None:
        self._requests = requests
        self._entrez = Entrez(requests)
        self._bucket = Bucket(requests)
        self._gate = _Gate(plan)

    @override
    def count(self, query: str) -> int:
        return self._entrez.count("pmc", _open_access(query))

    @override
    def examples(self, query: str) -> list[str]:
        return self._entrez.examples("pmc", _open_access(query))

    @override
    def find(self, query: str) -> list[str]:
        return [f"PMC{digits}" for digits in self._entrez.search("pmc", _open_access(query))]

    @override
    def cost(self, articles: int) -> tuple[int, float]:
        bucket = self._requests.services.pmc_bucket
        # A listing, the metadata, the text.
        return 3 * articles, 3 * articles / min(bucket.per_second, bucket.at_once / _SECONDS_A_REQUEST)

    @override
    def fetch(self, ids: list[str], advance: Advance) -> None:
        self._bucket.fetch(ids, self._gate.admits, advance)

    @override
    def documents(self, ids: list[str]) -> Iterator[Document]:
        for version, body in self._kept(ids):
            yield Document(f"{version.name}.xml", len(body), data=body)

    @override
    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        yield from ()

    @override
    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        versions = {pmcid: self._bucket.version(pmcid) for pmcid in ids}
        kept = {
            pmcid: version for pmcid, version in versions.items() if version and self._gate.admits(version)
        }
        pmids = {pmcid: version.pmid() for pmcid, version in kept.items()}
        unknown = [pmcid for pmcid, pmid in pmids.items() if pmid is None]
        pmids |= converted(self._requests, unknown, "pmid")
        for pmcid in kept:
            pmid = pmids[pmcid]
            yield pmcid, {"pmcid": pmcid, **({"pmid": pmid} if pmid else {})}

    @override
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        for version, body in self._kept(ids):
            digest = hashlib.sha256(body).hexdigest()
            number = version.name.rsplit(".", 1)[1]
            pmcid = version.name.rsplit(".", 1)[0]
            yield pmcid, self._bucket.address(version), number, version.licence or None, digest

    @override
    def left_out(self, ids: list[str]) -> Iterator[Rejection]:
        yield from self._bucket.absent(ids)
        for pmcid in ids:
            version = self._bucket.version(pmcid)
            if version is not None and (reason := self._gate.reason(version)):
                yield Rejection("pmc", version.name, pmcid, *reason)

    def _kept(self, ids: list[str]) -> Iterator[tuple[Version, bytes]]:
        for pmcid in ids:
            version = self._bucket.version(pmcid)
            answer = self._requests.journal.get(f"jats/{pmcid}")
            if version is not None and self._gate.admits(version) and answer is not None and answer.body:
                yield version, answer.body


class PubmedOrigin(Origin):
    """Titles, abstracts, MeSH headings and what PubMed has of reference lists. Ids are PMIDs."""

    def __init__(self, requests: Requests, plan: FetchConfig) -> None:
        self._requests = requests
        self._entrez = Entrez(requests)
        self._bucket = Bucket(requests)
        self._gate = _Gate(plan)
        self._gated = plan.licences != "any"
        # PubMed can leave them out itself.
        self._also = ' NOT "retracted publication"[pt]' if plan.retracted == "leave-out" else ""

    @override
    def count(self, query: str) -> int:
        return self._entrez.count("pubmed", self._whole(query))

    @override
    def examples(self, query: str) -> list[str]:
        return self._entrez.examples("pubmed", self._whole(query))

    @override
    def find(self, query: str) -> list[str]:
        return self._entrez.search("pubmed", self._whole(query))

    @override
    def cost(self, articles: int) -> tuple[int, float]:
        fetches = -(-articles // 200)
        return fetches, fetches * max(1 / self._requests.services.entrez.per_second, 4 * _SECONDS_A_REQUEST)

    @override
    def fetch(self, ids: list[str], advance: Advance) -> None:
        if self._gated:
            licensed = list(converted(self._requests, ids, "pmcid").values())
            self._bucket.fetch(licensed, lambda version: False, lambda steps=1: None)
        before = 0
        for _ in self._entrez.records(self._admitted(ids)):
            advance(min(200, len(ids) - before))
            before += 200

    @override
    def documents(self, ids: list[str]) -> Iterator[Document]:
        for pmid in self._admitted(ids):
            answer = self._requests.journal.get(f"pubmed/{pmid}")
            if answer is not None and answer.body:
                yield Document(f"{pmid}.xml", len(answer.body), data=answer.body)

    @override
    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        yield from ()

    @override
    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        for pmid in self._admitted(ids):
            yield pmid, {"pmid": pmid}

    @override
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        licences = {pmid: version.licence for pmid, version in self._versions(ids).items()}
        address = f"{self._requests.services.entrez.url}/efetch.fcgi?db=pubmed&retmode=xml&id="
        for document in self.documents(ids):
            pmid = document.name.removesuffix(".xml")
            digest = hashlib.sha256(document.data or b"").hexdigest()
            yield pmid, f"{address}{pmid}", None, licences.get(pmid) or None, digest

    @override
    def left_out(self, ids: list[str]) -> Iterator[Rejection]:
        admitted = set(self._admitted(ids))
        yield from self._entrez.absent_records(sorted(admitted))
        for pmid in ids:
            if pmid not in admitted:
                detail = f"PMC states no licence for {self._gate.licences} use"
                yield Rejection("pubmed", None, pmid, "licence", detail)

    def _whole(self, query: str) -> str:
        return f"({query}){self._also}" if self._also else query

    def _versions(self, ids: list[str]) -> dict[str, Version]:
        """PMID -> the newest version in the bucket, where licences matter and there is one."""
        if not self._gated:
            return {}
        pmcids = converted(self._requests, ids, "pmcid")
        found = ((pmid, self._bucket.version(pmcid)) for pmid, pmcid in pmcids.items())
        return {pmid: version for pmid, version in found if version is not None}

    def _admitted(self, ids: list[str]) -> list[str]:
        if not self._gated:
            return ids
        versions = self._versions(ids)
        return [pmid for pmid in ids if pmid in versions and self._gate.admits(versions[pmid])]


class EuropePmcOrigin(Origin):
    """Titles, abstracts and MeSH headings. Ids are `SOURCE/ID`, as in `MED/32162448`."""

    def __init__(self, requests: Requests, plan: FetchConfig) -> None:
        self._requests = requests
        self._service = EuropePmc(requests)
        self._also = ' NOT PUB_TYPE:"Retracted Publication"' if plan.retracted == "leave-out" else ""

    @override
    def count(self, query: str) -> int:
        return self._service.count(self._whole(query))

    @override
    def examples(self, query: str) -> list[str]:
        return self._service.examples(self._whole(query))

    @override
    def find(self, query: str) -> list[str]:
        return sorted({one for ids in self._service.search(self._whole(query)) for one in ids})

    @override
    def cost(self, articles: int) -> tuple[int, float]:
        pages = -(-articles // 1_000)
        return pages, pages * 10 * _SECONDS_A_REQUEST

    @override
    def fetch(self, ids: list[str], advance: Advance) -> None:
        advance(len(ids))  # the search brought them

    @override
    def documents(self, ids: list[str]) -> Iterator[Document]:
        yield from ()

    @override
    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        for one in ids:
            paper = self._service.paper(one)
            if paper is not None:
                yield one, paper

    @override
    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        for one, paper in self.papers(ids):
            names = {"pmid": paper.pmid, "pmcid": paper.pmcid, "doi": paper.doi}
            yield one, {kind: name for kind, name in names.items() if name}

    @override
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        for one, paper in self.papers(ids):
            answer = self._requests.journal.get(f"europepmc/{one}")
            digest = hashlib.sha256((answer and answer.body) or b"").hexdigest()
            address = f"{self._requests.services.europe_pmc.url}/article/{one}?resultType=core"
            yield one, address, None, paper.licence, digest

    @override
    def left_out(self, ids: list[str]) -> Iterator[Rejection]:
        yield from ()

    def _whole(self, query: str) -> str:
        return f"({query}){self._also}" if self._also else query


_SECONDS_A_REQUEST = 0.25
"""Of a usual answer, for the estimate of a dry run only."""


class _Gate:
    """Which article versions a plan keeps."""

    def __init__(self, plan: FetchConfig) -> None:
        self.licences = plan.licences
        self._allowed = LICENCES[plan.licences]
        self._keeps_retracted = plan.retracted == "keep"

    def admits(self, version: Version) -> bool:
        return self.reason(version) is None

    def reason(self, version: Version) -> tuple[str, str] | None:
        """(reason, detail) of leaving a version out; None if it is kept."""
        if not self._allowed(version.licence):
            return "licence", f"{version.licence or 'no licence'} does not allow {self.licences} use"
        if version.retracted and not self._keeps_retracted:
            return "retracted", "the bucket marks it as retracted"
        return None


def _open_access(query: str) -> str:
    return f"({query}) AND open access[filter]"


def pmids_of(names: Iterable[tuple[str, Names]]) -> list[str]:
    """The PMIDs among the names, each once, by number."""
    return sorted({found["pmid"] for _, found in names if "pmid" in found}, key=int)

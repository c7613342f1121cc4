"""The sources of articles, with one interface: PMC, PubMed, Europe PMC, OpenAlex."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import ClassVar

from typing_extensions import override

from sentence_experts.corpus.config import FetchConfig
from sentence_experts.corpus.formats.archives import Document
from sentence_experts.corpus.paper import Paper, Rejection
from sentence_experts.corpus.sources.entrez import Entrez
from sentence_experts.corpus.sources.europepmc import EuropePmc
from sentence_experts.corpus.sources.openalex import PAGE, OpenAlex
from sentence_experts.corpus.sources.pmc import LICENCES, Bucket, Version, converted
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.progress import Advance, unseen

Names = dict[str, str]
"""The ids that a paper goes by: `pmid`, `pmcid`, `doi`, `openalex`."""
Provenance = tuple[str, str, str | None, str | None, str]
"""record, address, version, licence code, SHA-256"""

_SECONDS_PER_REQUEST = 0.25
"""Duration of a usual answer, for estimates."""


class RecordSource(ABC):
    """A source of articles, with ids of its own."""

    @abstractmethod
    def count(self, query: str) -> int:
        """The number of articles that a query finds."""

    def examples(self, query: str) -> list[str]:
        """The titles of a few of them."""
        return []

    @abstractmethod
    def find(self, query: str) -> list[str]:
        """The ids that a query finds."""

    def cost(self, articles: int) -> tuple[int, float]:
        """(requests, seconds) to fetch a number of articles."""
        return 0, 0.0

    def fetch(self, ids: list[str], advance: Advance) -> None:
        """Fetch articles into the journal, unless `find` has brought them."""
        advance(len(ids))

    def documents(self, ids: list[str]) -> Iterator[Document]:
        """The XML of the articles that were fetched and may be kept."""
        yield from ()

    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        """The articles that do not come as XML, with their ids."""
        yield from ()

    @abstractmethod
    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        """The names of those that are kept."""

    @abstractmethod
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        """Where each of those that are kept came from."""

    def left_out(self, ids: list[str]) -> Iterator[Rejection]:
        """Those that were not there, or that the settings leave out."""
        yield from ()


class _EntrezSource(RecordSource):
    """Articles of one of Entrez's databases, with their licences and retractions from PMC's bucket."""

    _database: ClassVar[str]
    _also: str
    """A term that is added to every query."""

    def __init__(self, requests: Requests, config: FetchConfig) -> None:
        self._requests = requests
        self._entrez = Entrez(requests)
        self._bucket = Bucket(requests)
        self._filter = _Filter(config)

    @override
    def count(self, query: str) -> int:
        return self._entrez.count(self._database, _both(query, self._also))

    @override
    def examples(self, query: str) -> list[str]:
        return self._entrez.examples(self._database, _both(query, self._also))

    @override
    def find(self, query: str) -> list[str]:
        return self._entrez.search(self._database, _both(query, self._also))


class PmcSource(_EntrezSource):
    """Whole open-access articles, found by Entrez and read from PMC's bucket. Ids are PMCIDs."""

    _database = "pmc"
    _also = " AND open access[filter]"

    @override
    def find(self, query: str) -> list[str]:
        return [f"PMC{digits}" for digits in super().find(query)]

    @override
    def cost(self, articles: int) -> tuple[int, float]:
        bucket = self._requests.services.pmc_bucket
        # A listing, the metadata, the text.
        return 3 * articles, 3 * articles / min(bucket.per_second, bucket.at_once / _SECONDS_PER_REQUEST)

    @override
    def fetch(self, ids: list[str], advance: Advance) -> None:
        self._bucket.fetch(ids, self._filter.admits, advance)

    @override
    def documents(self, ids: list[str]) -> Iterator[Document]:
        for version, body in self._kept(ids):
            yield Document(f"{version.name}.xml", len(body), data=body)

    @override
    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        versions = ((pmcid, self._bucket.version(pmcid)) for pmcid in ids)
        admitted = {pmcid: version for pmcid, version in versions if version and self._filter.admits(version)}
        pmids = {pmcid: version.pmid() for pmcid, version in admitted.items()}
        pmids |= converted(self._requests, [pmcid for pmcid, pmid in pmids.items() if pmid is None], "pmid")
        for pmcid, pmid in pmids.items():
            yield pmcid, {"pmcid": pmcid, **({"pmid": pmid} if pmid else {})}

    @override
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        for version, body in self._kept(ids):
            digest = hashlib.sha256(body).hexdigest()
            pmcid, _, number = version.name.rpartition(".")
            yield pmcid, self._bucket.address(version), number, version.licence or None, digest

    @override
    def left_out(self, ids: list[str]) -> Iterator[Rejection]:
        yield from self._bucket.absent(ids)
        for pmcid in ids:
            version = self._bucket.version(pmcid)
            if version is not None and (reason := self._filter.reason(version)):
                yield Rejection("pmc", version.name, pmcid, *reason)

    def _kept(self, ids: list[str]) -> Iterator[tuple[Version, bytes]]:
        for pmcid in ids:
            version = self._bucket.version(pmcid)
            answer = self._requests.journal.get(f"jats/{pmcid}")
            if version is not None and self._filter.admits(version) and answer is not None and answer.body:
                yield version, answer.body


class PubmedSource(_EntrezSource):
    """Titles, abstracts, MeSH headings and PubMed's reference lists. Ids are PMIDs."""

    _database = "pubmed"

    def __init__(self, requests: Requests, config: FetchConfig) -> None:
        super().__init__(requests, config)
        self._filtered = config.licences != "any"
        # PubMed's search can leave them out itself.
        self._also = "" if config.keep_retracted else ' NOT "retracted publication"[pt]'

    @override
    def cost(self, articles: int) -> tuple[int, float]:
        fetches = -(-articles // 200)
        return fetches, fetches * max(1 / self._requests.services.entrez.per_second, 4 * _SECONDS_PER_REQUEST)

    @override
    def fetch(self, ids: list[str], advance: Advance) -> None:
        if self._filtered:
            licensed = list(converted(self._requests, ids, "pmcid").values())
            self._bucket.fetch(licensed, lambda version: False, unseen)
        for before, _ in enumerate(self._entrez.records(self._admitted(ids))):
            advance(min(200, len(ids) - 200 * before))

    @override
    def documents(self, ids: list[str]) -> Iterator[Document]:
        for pmid in self._admitted(ids):
            answer = self._requests.journal.get(f"pubmed/{pmid}")
            if answer is not None and answer.body:
                yield Document(f"{pmid}.xml", len(answer.body), data=answer.body)

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
                detail = f"PMC states no licence for {self._filter.licences} use"
                yield Rejection("pubmed", None, pmid, "licence", detail)

    def _versions(self, ids: list[str]) -> dict[str, Version]:
        """PMID -> the newest version in the bucket, if licences matter and there is one."""
        if not self._filtered:
            return {}
        pmcids = converted(self._requests, ids, "pmcid")
        versions = ((pmid, self._bucket.version(pmcid)) for pmid, pmcid in pmcids.items())
        return {pmid: version for pmid, version in versions if version is not None}

    def _admitted(self, ids: list[str]) -> list[str]:
        if not self._filtered:
            return ids
        versions = self._versions(ids)
        return [pmid for pmid in ids if pmid in versions and self._filter.admits(versions[pmid])]


class _SearchedSource(RecordSource):
    """Records that a search brings whole, so that nothing else is fetched."""

    _service: EuropePmc | OpenAlex
    _place: str
    """Where records are in the journal."""
    _page_size: int
    _page_seconds: float

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    @abstractmethod
    def query(self, query: str) -> str:
        """The query that is sent to the service, without retracted papers unless they are kept."""

    @abstractmethod
    def address(self, one: str) -> str:
        """The address of a record."""

    @override
    def count(self, query: str) -> int:
        return self._service.count(self.query(query))

    @override
    def examples(self, query: str) -> list[str]:
        return self._service.examples(self.query(query))

    @override
    def find(self, query: str) -> list[str]:
        return sorted(set(chain.from_iterable(self._service.search(self.query(query)))))

    @override
    def cost(self, articles: int) -> tuple[int, float]:
        pages = -(-articles // self._page_size)
        return pages, pages * self._page_seconds

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
            names["openalex"] = f"W{paper.openalex}" if paper.openalex else None
            yield one, {kind: name for kind, name in names.items() if name}

    @override
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        for one, paper in self.papers(ids):
            answer = self._requests.journal.get(f"{self._place}/{one}")
            digest = hashlib.sha256((answer and answer.body) or b"").hexdigest()
            yield one, self.address(one), None, paper.licence, digest


class EuropePmcSource(_SearchedSource):
    """Titles, abstracts and MeSH headings. Ids are `SOURCE/ID`, as in `MED/32162448`."""

    _place = "europepmc"
    _page_size, _page_seconds = 1_000, 10 * _SECONDS_PER_REQUEST

    def __init__(self, requests: Requests, config: FetchConfig) -> None:
        super().__init__(requests)
        self._service = EuropePmc(requests)
        self._also = "" if config.keep_retracted else ' NOT PUB_TYPE:"Retracted Publication"'

    @override
    def query(self, query: str) -> str:
        return _both(query, self._also)

    @override
    def address(self, one: str) -> str:
        return f"{self._requests.services.europe_pmc.url}/article/{one}?resultType=core"


class OpenAlexSource(_SearchedSource):
    """Titles, abstracts, topics and references of works of any field. Ids are `W123`."""

    _place = "openalex"
    _page_size, _page_seconds = PAGE, 4 * _SECONDS_PER_REQUEST

    def __init__(self, requests: Requests, config: FetchConfig) -> None:
        super().__init__(requests)
        self._service = OpenAlex(requests)
        self._also = "" if config.keep_retracted else ",is_retracted:false"

    @override
    def query(self, query: str) -> str:
        return query + self._also

    @override
    def address(self, one: str) -> str:
        return f"{self._requests.services.openalex.url}/works/{one}"


class _Filter:
    """Decides which article versions are kept."""

    def __init__(self, config: FetchConfig) -> None:
        self.licences = config.licences
        self._allowed = LICENCES[config.licences]
        self._keeps_retracted = config.keep_retracted

    def admits(self, version: Version) -> bool:
        return self.reason(version) is None

    def reason(self, version: Version) -> tuple[str, str] | None:
        """The reason and detail of leaving a version out; None if it is kept."""
        if not self._allowed(version.licence):
            return "licence", f"{version.licence or 'no licence'} does not allow {self.licences} use"
        if version.retracted and not self._keeps_retracted:
            return "retracted", "the bucket marks it as retracted"
        return None


def _both(query: str, also: str) -> str:
    return f"({query}){also}" if also else query


def pmids_of(names: Iterable[tuple[str, Names]]) -> list[str]:
    """The distinct PMIDs among the names, in numeric order."""
    return sorted({entry["pmid"] for _, entry in names if "pmid" in entry}, key=int)

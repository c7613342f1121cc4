"""The sources of citations besides the articles' own lists: iCite, NCBI's links, Europe PMC."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from sentence_experts.corpus.sources import icite
from sentence_experts.corpus.sources.entrez import Entrez
from sentence_experts.corpus.sources.europepmc import EuropePmc
from sentence_experts.corpus.sources.requests import Requests
from sentence_experts.corpus.sources.services import Service
from sentence_experts.progress import Advance

Link = tuple[str, str]
"""(citing, cited), each as `doi:...`, `pmid:...` or `pmc:PMC...`"""

_SECONDS_PER_REQUEST = 1.0
"""Duration of an answer with many links, for estimates."""


@dataclass
class CitationSource(ABC):
    """A source of citations; papers are named by their PMIDs."""

    requests: Requests
    papers_per_request: ClassVar[int] = 1
    service: ClassVar[str] = "icite"
    requests_at_a_time: ClassVar[int] = 1

    def cost(self, papers: int) -> tuple[int, float]:
        """(requests, seconds) to fetch the links of a number of papers."""
        requests = -(-papers // self.papers_per_request)
        service: Service = getattr(self.requests.services, self.service)
        return requests, requests * max(_SECONDS_PER_REQUEST, self.requests_at_a_time / service.per_second)

    @abstractmethod
    def fetch(self, pmids: list[str], advance: Advance) -> None:
        """Fetch the links of the papers into the journal."""

    @abstractmethod
    def links(self, pmids: list[str]) -> Iterator[Link]:
        """Every fetched citation of the papers or by them, each once, in a defined order."""


class ICite(CitationSource):
    """The NIH Open Citation Collection, 1,000 papers per request."""

    papers_per_request = 1_000

    @override
    def fetch(self, pmids: list[str], advance: Advance) -> None:
        for _ in icite.fetch_links(self.requests, pmids):
            advance(self.papers_per_request)

    @override
    def links(self, pmids: list[str]) -> Iterator[Link]:
        for citing, cited in icite.fetched_links(self.requests, pmids):
            yield f"pmid:{citing}", f"pmid:{cited}"


class ELink(CitationSource):
    """NCBI's own links: who cites a paper, and whom it cites (articles in PMC only)."""

    papers_per_request, service, requests_at_a_time = 100, "entrez", 2

    @override
    def fetch(self, pmids: list[str], advance: Advance) -> None:
        entrez = Entrez(self.requests)
        for name in ("pubmed_pubmed_citedin", "pubmed_pubmed_refs"):
            entrez.links(name, pmids)
        advance(len(pmids))

    @override
    def links(self, pmids: list[str]) -> Iterator[Link]:
        entrez, inside = Entrez(self.requests), set(pmids)
        for cited, by in entrez.links("pubmed_pubmed_citedin", pmids).items():
            yield from ((f"pmid:{citing}", f"pmid:{cited}") for citing in by)
        for citing, refs in entrez.links("pubmed_pubmed_refs", pmids).items():
            yield from ((f"pmid:{citing}", f"pmid:{cited}") for cited in refs if cited not in inside)


class EuropePmcLinks(CitationSource):
    """Europe PMC's references and citations, two requests per paper."""

    service, requests_at_a_time = "europe_pmc", 2

    @override
    def fetch(self, pmids: list[str], advance: Advance) -> None:
        service = EuropePmc(self.requests)

        def ask(pmid: str) -> None:
            for relation in ("citations", "references"):
                service.linked(relation, f"MED/{pmid}")

        for _ in self.requests.in_turn("europe pmc", ((pmid, pmid) for pmid in pmids), ask):
            advance()

    @override
    def links(self, pmids: list[str]) -> Iterator[Link]:
        service, inside = EuropePmc(self.requests), {f"pmid:{pmid}" for pmid in pmids}
        for pmid in pmids:
            own = f"pmid:{pmid}"
            yield from ((other, own) for other in service.linked("citations", f"MED/{pmid}"))
            for other in service.linked("references", f"MED/{pmid}"):
                if other not in inside:
                    yield own, other


CITATION_SOURCES: dict[str, type[CitationSource]] = {
    "icite": ICite, "elink": ELink, "europepmc": EuropePmcLinks,
}  # fmt: skip

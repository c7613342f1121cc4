"""Where citations may come from besides the articles' own lists: iCite, NCBI's links, Europe PMC."""

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
from sentence_experts.corpus.sources.services import Services
from sentence_experts.progress import Advance

Link = tuple[str, str]
"""(citing, cited), each as `doi:...`, `pmid:...` or `pmc:PMC...`"""

_SECONDS_A_REQUEST = 1.0
"""Of an answer with many links, for the estimate of a dry run only."""


@dataclass
class Citations(ABC):
    """One source of citations; papers are named by their PMIDs."""

    requests: Requests
    papers_a_request: ClassVar[int] = 1

    def cost(self, papers: int) -> tuple[int, float]:
        """(requests, seconds) that so many papers take."""
        asked = -(-papers // self.papers_a_request)
        return asked, asked * max(_SECONDS_A_REQUEST, 1 / self._per_second(self.requests.services))

    def _per_second(self, services: Services) -> float:
        return services.icite.per_second

    @abstractmethod
    def fetch(self, pmids: list[str], advance: Advance) -> None:
        """Fetch the links of the papers into the journal."""

    @abstractmethod
    def links(self, pmids: list[str]) -> Iterator[Link]:
        """Every citation of the papers and by them that was fetched, each once, in a defined order."""


class ICite(Citations):
    """The NIH Open Citation Collection, 1,000 papers a request."""

    papers_a_request = 1_000

    @override
    def fetch(self, pmids: list[str], advance: Advance) -> None:
        for _ in icite.fetch_links(self.requests, pmids):
            advance(self.papers_a_request)

    @override
    def links(self, pmids: list[str]) -> Iterator[Link]:
        for citing, cited in icite.fetched_links(self.requests, pmids):
            yield f"pmid:{citing}", f"pmid:{cited}"


class ELink(Citations):
    """What NCBI itself links: who cites a paper, whom it cites (of the articles in PMC)."""

    papers_a_request = 100

    @override
    def _per_second(self, services: Services) -> float:
        return services.entrez.per_second / 2

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


class EuropePmcLinks(Citations):
    """Europe PMC's references and citations, two requests a paper."""

    @override
    def _per_second(self, services: Services) -> float:
        return services.europe_pmc.per_second / 2

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


CITATIONS: dict[str, type[Citations]] = {"icite": ICite, "elink": ELink, "europepmc": EuropePmcLinks}

"""The services that articles come from: their addresses and rate limits, and what each can be asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from sentence_experts.progress import Advance

if TYPE_CHECKING:
    from sentence_experts.corpus.formats.archives import Document
    from sentence_experts.corpus.paper import Paper, Rejection

ENTREZ_WITH_KEY = 10.0
"""Requests per second that the E-utilities allow with an API key, instead of 3
(E-utilities documentation, "API Keys")."""
SECONDS_PER_REQUEST = 0.25
"""Duration of a usual answer, for estimates."""
Names = dict[str, str]
"""The ids that a paper goes by: `pmid`, `pmcid`, `doi`, `openalex`."""
Provenance = tuple[str, str, str | None, str | None, str]
"""record, address, version, licence code, SHA-256"""


class Service(BaseModel):
    """One service: its base address (no slash at the end), and the maximum number of requests per second and
    under way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    per_second: float = Field(gt=0)
    at_once: int = Field(default=1, ge=1)

    @property
    def host(self) -> str:
        """Its host, with the port if the address has one."""
        return urlsplit(self.url).netloc


class Services(BaseModel):
    """Every service; a mirror or proxy can replace one by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entrez: Service = Service(url="https://eutils.ncbi.nlm.nih.gov/entrez/eutils", per_second=3)
    # A bucket of the AWS Open Data programme, read anonymously; no limit is published.
    pmc_bucket: Service = Service(url="https://pmc-oa-opendata.s3.amazonaws.com", per_second=30, at_once=8)
    # The service allows 100 a second.
    openalex: Service = Service(url="https://api.openalex.org", per_second=10)


class RecordSource(ABC):
    """A service that gives articles, which it names by ids of its own."""

    @abstractmethod
    def count(self, query: str) -> int:
        """Return the number of articles that a query finds now; nothing is stored."""

    @abstractmethod
    def examples(self, query: str) -> list[str]:
        """Return the titles of a few of them."""

    @abstractmethod
    def find(self, query: str) -> list[str]:
        """Return the ids that a query finds."""

    @abstractmethod
    def cost(self, articles: int) -> tuple[int, float]:
        """Return (requests, seconds) to fetch a number of articles."""

    def fetch(self, ids: list[str], advance: Advance) -> None:
        """Fetch articles into the journal, unless `find` has brought them."""
        advance(len(ids))

    def documents(self, ids: list[str]) -> Iterator[Document]:
        """Yield the XML of the articles that were fetched and may be kept."""
        yield from ()

    def papers(self, ids: list[str]) -> Iterator[tuple[str, Paper]]:
        """Yield the articles that do not come as XML, with their ids."""
        yield from ()

    @abstractmethod
    def names(self, ids: list[str]) -> Iterator[tuple[str, Names]]:
        """Yield the names of those that are kept."""

    @abstractmethod
    def provenance(self, ids: list[str]) -> Iterator[Provenance]:
        """Yield where each of those that are kept came from."""

    def left_out(self, ids: list[str]) -> Iterator[Rejection]:
        """Yield those that were not there, or that the settings leave out."""
        yield from ()

"""The services that articles come from: their addresses and rate limits, and what each can be asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from sentence_experts.progress import Advance

ENTREZ_WITH_KEY = 10.0
"""Requests per second that the E-utilities allow with an API key, instead of 3
(E-utilities documentation, "API Keys")."""
SECONDS_PER_REQUEST = 0.25
"""Duration of a usual answer, for estimates."""
Names = dict[str, str]
"""The ids that a paper goes by: `pmid`, `pmcid`, `doi`, `openalex`."""


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


@dataclass(frozen=True)
class Record:
    """An article in the journal, or the reason why its text is not there or not to be used.

    Attributes:
        id: its id at the service.
        names: its ids elsewhere.
        address: where it came from.
        body: its text; None if it is left out.
        version: its version, if the service counts them.
        licence: its licence code.
        reason: code and detail, if it is left out.
    """

    id: str
    names: Names = field(default_factory=dict)
    address: str = ""
    body: bytes | None = None
    version: str | None = None
    licence: str | None = None
    reason: tuple[str, str] = ("", "")


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

    @abstractmethod
    def records(self, ids: list[str]) -> Iterator[Record]:
        """Yield what the journal has of the articles."""

"""The interface of the services that articles come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from sentence_experts.corpus.formats.archives import Document
from sentence_experts.corpus.paper import Paper, Rejection
from sentence_experts.progress import Advance

Names = dict[str, str]
"""The ids that a paper goes by: `pmid`, `pmcid`, `doi`, `openalex`."""
Provenance = tuple[str, str, str | None, str | None, str]
"""record, address, version, licence code, SHA-256"""
SECONDS_PER_REQUEST = 0.25
"""Duration of a usual answer, for estimates."""


class RecordSource(ABC):
    """A source of articles, with ids of its own."""

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

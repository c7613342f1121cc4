"""The requests that `/search` takes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sentence_experts.retrieval.config import Notices
from sentence_experts.retrieval.filters import Filters
from sentence_experts.serve.http import Schema

MAX_HITS = 100  # per route
MAX_LIKE = 20
MAX_VALUES = 100  # of a filter
MAX_SENTENCE_PAPERS = 50
MAX_EXPORT = 10_000

Ids = Annotated[list[str], Field(description="Papers, by DOI, PMID, PMCID or `paper_id`")]


class SearchTarget(Schema):
    """The query: a text, or papers."""

    query: str | None = Field(None, description="A text")
    like: Annotated[list[str] | None, Field(max_length=MAX_LIKE)] = Field(
        None, description="Papers instead of a text, by DOI, PMID, PMCID or `paper_id`"
    )


class SearchRequest(SearchTarget):
    """A search under several routes."""

    routes: list[str] | None = Field(
        None,
        description="NAME:ROUTE each, or NAME for all routes of a model. Default: those of the first model, "
        "and its base",
    )
    top_k: Annotated[int, Field(ge=1, le=MAX_HITS)] = Field(10, description="Papers per route")
    year: str | None = Field(None, description='"2015", "2015..2020", "2015.." or "..2020"')
    types: list[str] = Field([], max_length=MAX_VALUES, description="Types of article")
    journals: list[str] = Field([], max_length=MAX_VALUES, description="Journals")
    domains: list[str] = Field(
        [], max_length=MAX_VALUES, description="Domains of a fetched corpus, else subjects"
    )
    keywords: list[str] = Field([], max_length=MAX_VALUES, description="Keywords")
    mesh: list[str] = Field([], max_length=MAX_VALUES, description="MeSH headings")
    notices: Notices = False
    hybrid: bool = Field(False, description="Rank by the words of the query too (BM25)")

    def filters(self, any_year: bool = False) -> Filters:
        """Which papers to look at."""
        year = None if any_year else self.year
        return Filters.of(
            year, self.types, self.journals, self.domains, self.keywords, self.mesh, self.notices
        )


class SentencesRequest(SearchTarget):
    """The sentences of papers that are nearest to a query under one route."""

    route: str = Field(description="One route")
    papers: Annotated[Ids, Field(max_length=MAX_SENTENCE_PAPERS)]


class CitationsRequest(Schema):
    """A paper whose citations are wanted."""

    paper: str = Field(description="DOI, PMID, PMCID or `paper_id`")


class ExportRequest(Schema):
    """Papers for a reference manager or a spreadsheet."""

    papers: Annotated[Ids, Field(max_length=MAX_EXPORT)]
    format: Literal["ris", "bibtex", "csv"] = Field(description="Form of the file")

"""Settings of `search` and `build_index`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sentence_experts.config import BatchSize, Config
from sentence_experts.retrieval.filters import Filters

Unit = Annotated[Literal["title+abstract", "abstract", "title"], Field(description="Text of a paper")]


class SearchConfig(Config):
    """Settings of `search`."""

    route: str | None = Field(
        None,
        description="Route for papers and queries. Default: the model's default route, or its routes for "
        "queries and documents if it has them",
    )
    query_route: str | None = Field(None, description="Route for queries, if it is another one")
    document_route: str | None = Field(None, description="Route for papers, if it is another one")
    top_k: int = Field(10, ge=1, description="Maximum number of papers per query")
    unit: Unit = "title+abstract"
    like: list[str] | None = Field(
        None, description="Papers of the corpus, by DOI, PMID, PMCID or id: find papers like them"
    )
    hybrid: bool = Field(
        False, description="Order by the ranks of both the cosine and the words of the query (BM25)"
    )
    year: str | None = Field(None, description="Only papers of 2015, 2015..2020, 2015.. or ..2020")
    type: list[str] | None = Field(None, description="Only papers of these types; `*` stands for any text")
    journal: list[str] | None = Field(None, description="Only papers of these journals, in the same way")
    domain: list[str] | None = Field(
        None, description="Only papers of these domains: those of `domains`, or that the corpus was fetched "
        "by, or else its subjects"
    )  # fmt: skip
    domains: Path | dict[str, Any] | None = Field(
        None, description="YAML rules that sort papers into domains, as for `compile_pairs`"
    )
    sentences: bool = Field(
        True, description="Find the sentence of each abstract that is nearest to the query"
    )
    batch_size: BatchSize = None

    @property
    def filters(self) -> Filters:
        """Which papers to look at."""
        return Filters.of(self.year, self.type or (), self.journal or (), self.domain or ())


class IndexConfig(Config):
    """Settings of `build_index`."""

    route: list[str] | None = Field(
        None, description="Routes to encode with, or all. Default: the one that `search` takes by default"
    )
    unit: Unit = "title+abstract"
    batch_size: BatchSize = None

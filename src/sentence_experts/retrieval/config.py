"""Settings of `search` and `build_index`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from sentence_experts.config import BatchSize, Config
from sentence_experts.models.sources import notes_of, warn_of_notes
from sentence_experts.retrieval.filters import Filters
from sentence_experts.retrieval.texts import PASSAGES

LANCE_TABLE = "papers"  # the name that `export_index` gives a table

Notices = Annotated[
    bool, Field(description="Find corrections, retractions, editorials and other notices too")
]
Unit = Annotated[
    Literal["title+abstract", "abstract", "title"] | None,
    Field(description="Text of a paper. Default: the one that the model was trained on, or title+abstract"),
]
WHOLE = "title+abstract"


class PaperTexts(Config):
    """Which text of a paper is searched."""

    unit: Unit = None
    passages: bool = Field(
        False,
        description="Search title, abstract and full text, if the corpus has it, in overlapping passages as "
        "long as the model reads; a paper counts by its best one",
    )

    @model_validator(mode="after")
    def _check_unit(self) -> PaperTexts:
        if self.passages and self.unit is not None:
            raise ValueError("`passages` are of title, abstract and full text: leave out `unit`")
        return self

    def texts_for(self, models: Mapping[str, Any]) -> str:
        """Choose the unit, or "passages", for models by name; warn of those trained on another text."""
        notes = {name: notes_of(model) for name, model in models.items()}
        units = {each["unit"] for each in notes.values() if "unit" in each}
        unit = PASSAGES if self.passages else self.unit or (units.pop() if len(units) == 1 else WHOLE)
        for name, each in notes.items():
            warn_of_notes(name, each, unit)
        return unit


class SearchConfig(PaperTexts):
    """Settings of `search`."""

    route: str | None = Field(
        None,
        description="Route for papers and queries. Default: the model's default route, or its routes for "
        "queries and documents if it has them",
    )
    query_route: str | None = Field(None, description="Route for queries, if it is another one")
    document_route: str | None = Field(None, description="Route for papers, if it is another one")
    top_k: int = Field(10, ge=1, description="Maximum number of papers per query")
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
    keyword: list[str] | None = Field(None, description="Only papers with one of these keywords")
    mesh: list[str] | None = Field(None, description="Only papers with one of these MeSH headings")
    notices: Notices = False
    domains: Path | dict[str, Any] | None = Field(
        None, description="YAML rules that sort papers into domains, like those that pairs are compiled by"
    )
    sentences: bool = Field(
        True, description="Find the sentence of each abstract, or passage, that is nearest to the query"
    )
    batch_size: BatchSize = None

    @property
    def filters(self) -> Filters:
        """The papers to look at."""
        return Filters.of(
            self.year, self.type, self.journal, self.domain, self.keyword, self.mesh, self.notices
        )


class IndexConfig(PaperTexts):
    """Settings of `build_index`."""

    route: list[str] | None = Field(
        None, description="Routes to encode with, or all. Default: the one that `search` takes by default"
    )
    window: int | None = Field(
        None, ge=8, description="Tokens of a passage. Default: as many as the model reads of a text"
    )
    overlap: int | None = Field(
        None, ge=0, description="Tokens that a passage has in common with the next one. Default: a fifth"
    )
    batch_size: BatchSize = None

    @model_validator(mode="after")
    def _check_windows(self) -> IndexConfig:
        if not self.passages and (self.window is not None or self.overlap is not None):
            raise ValueError("`window` and `overlap` are of passages: give `passages` too")
        return self

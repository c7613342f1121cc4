"""Settings of `search` and `build_index`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from sentence_experts.config import BatchSize, Config
from sentence_experts.errors import UsageError
from sentence_experts.models.sources import notes_of, warn_of_notes
from sentence_experts.retrieval.texts import PASSAGES

_YEARS = re.compile(r"(\d{1,4})?(\.\.)?(\d{1,4})?")


@dataclass(frozen=True)
class Filters:
    """Conditions that papers must meet to be found; an empty condition admits all papers.

    Attributes:
        years: first and last year; None for an open end.
        type, journal, domain, keyword, mesh: at least one of these values each, upper or lower case; `*`
            stands for any text. Domains are those that a corpus was fetched by, else its subjects.
        notices: whether corrections, editorials and other notices (`NOTICE_KINDS`) are found too.
    """

    years: tuple[int | None, int | None] = (None, None)
    type: tuple[str, ...] = ()
    journal: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    keyword: tuple[str, ...] = ()
    mesh: tuple[str, ...] = ()
    notices: bool = True

    @classmethod
    def of(
        cls, year: str | int | None = None, notices: bool = True, **values: Sequence[str] | None
    ) -> Filters:
        """Return filters as people write them; `year` is "2015", "2015..2020", "2015.." or "..2020".

        >>> Filters.of("2015..").years
        (2015, None)
        """
        given = {name: tuple(each or ()) for name, each in values.items()}
        return cls(_years(year), **given, notices=notices)


def _years(year: str | int | None) -> tuple[int | None, int | None]:
    if year is None:
        return None, None
    text = str(year).strip()
    match = _YEARS.fullmatch(text)
    if match is None or not (match[1] or match[3]) or (match[3] and not match[2]):
        raise UsageError(f"`year`: {text!r} is not of the form 2015, 2015..2020, 2015.. or ..2020")
    first, last = (int(each) if each else None for each in (match[1], match[3] if match[2] else match[1]))
    if first is not None and last is not None and first > last:
        raise UsageError(f"`year`: {text!r}: the first year must come before the last")
    return first, last


Notices = Annotated[
    bool, Field(description="Find corrections, retractions, editorials and other notices too")
]


class PaperTexts(Config):
    """Which text of a paper is searched."""

    unit: Literal["title+abstract", "abstract", "title"] | None = Field(
        None, description="Text of a paper. Default: the one that the model was trained on, or title+abstract"
    )
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
        trained = units.pop() if len(units) == 1 else "title+abstract"
        unit = PASSAGES if self.passages else self.unit or trained
        for name, each in notes.items():
            warn_of_notes(name, each, unit)
        return unit


class SearchConfig(PaperTexts):
    """Settings of `search`."""

    route: str | dict[str, float] | None = Field(
        None,
        description="Route for papers and queries, or several with their weights: use=0.7,works-with=0.3. "
        "Default: the model's default route, or its routes for queries and documents if it has them",
    )
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
        names = ("year", "notices", "type", "journal", "domain", "keyword", "mesh")
        return Filters.of(**{name: getattr(self, name) for name in names})


class IndexConfig(PaperTexts):
    """Settings of `build_index`."""

    route: list[str] | None = Field(
        None,
        description="Routes to encode with, or all. Default: all if they are heads, which share their "
        "vectors, else the one that `search` takes by default",
    )
    batch_size: BatchSize = None

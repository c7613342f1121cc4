"""Settings of `import_corpus` and `fetch_corpus`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from sentence_experts.config import Config, KeepRetracted
from sentence_experts.corpus.sources.services import Services
from sentence_experts.names import DOMAIN

EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")

CitationSource = Literal["icite", "elink", "europepmc"]
COUNTED = ("subjects", "mesh", "keywords", "journal", "article_type", "licence", "year")
"""Columns of the papers whose values can be listed."""
Workers = Annotated[
    int | None,
    Field(
        ge=1,
        description="Number of processes that parse articles; the result is the same. Default: one per core",
    ),
]


class ImportConfig(Config):
    """Settings of `import_corpus`."""

    workers: Workers = None


class FetchConfig(Config):
    """Settings of `fetch_corpus`: what to fetch, and how patiently."""

    domains: dict[str, str] = Field(
        {},
        description="NAME=QUERY: a domain, and the query of its articles as the service's website takes it",
    )
    source: Literal["pmc", "pubmed", "pubmed-files", "europepmc"] = Field(
        "pmc",
        description="Where articles come from: pmc (whole open-access articles, from PMC's bucket), pubmed "
        "(titles, abstracts and MeSH headings of all of PubMed), pubmed-files (the same from PubMed's "
        "baseline and update files; queries are MeSH headings), europepmc (the same from Europe PMC)",
    )
    pubmed_files: Path | None = Field(
        None, description="Folder of PubMed's files; if it has none, they are downloaded into it (50 GB)"
    )
    mesh_descriptors: Path | None = Field(None, description="NLM's descXXXX.xml, for source pubmed-files")
    years: tuple[int, int] | None = Field(
        None, description="First and last year, for source pubmed-files, such as 2010,2022"
    )
    citations: tuple[CitationSource, ...] = Field(
        ("icite",),
        description="Where citations come from besides the articles' own reference lists, any of: icite (the "
        "NIH Open Citation Collection: who cites each paper, and whom it cites), elink (the same from NCBI), "
        "europepmc (the same from Europe PMC, two requests per paper), or none",
    )
    citation_table: Path | None = Field(
        None,
        description="An unpacked open_citation_collection.csv of iCite, read instead of asking iCite's API",
    )
    licences: Literal["any", "commercial", "noncommercial"] = Field(
        "any", description="Keep only articles whose PMC licence allows this use"
    )
    keep_retracted: KeepRetracted = False
    max_articles: int | None = Field(
        None, ge=1, description="Maximum number of articles per domain, sampled at random with a fixed seed"
    )
    published: dict[str, int] = Field(
        {}, description="Published number of papers with an abstract per domain, shown beside the result"
    )
    services: Services = Services()
    email: str | None = Field(
        None, description="Your email address, which NCBI requires. Default: that of NCBI_EMAIL"
    )
    api_key: str | None = Field(
        None, description="NCBI API key: 10 requests per second instead of 3. Default: NCBI_API_KEY"
    )
    attempts: int = Field(6, ge=1, le=20, description="Maximum number of attempts per request")
    first_wait: float = Field(
        1.0, gt=0, description="Seconds before the second attempt, doubled before each further one"
    )
    timeout: float = Field(60.0, gt=0, description="Seconds without a byte after which an attempt fails")
    workers: Workers = None

    @field_validator("citations", mode="before")
    @classmethod
    def _split_at_commas(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        return [part for part in value if part != "none"] if isinstance(value, list | tuple) else value

    @field_validator("domains")
    @classmethod
    def _check_domains(cls, domains: dict[str, str]) -> dict[str, str]:
        for name, query in domains.items():
            DOMAIN.check("domain", name)
            if not query.strip():
                raise ValueError(f"domain {name}: the query is empty")
        return domains

    @model_validator(mode="after")
    def _check_source(self) -> FetchConfig:
        if self.citation_table is not None and "icite" not in self.citations:
            raise ValueError("`citation_table` is iCite's, so `citations` must include icite")
        if self.licences != "any" and self.source not in ("pmc", "pubmed"):
            raise ValueError("`licences` are those of PMC: use `source=pmc` or `source=pubmed`")
        of_files = ("pubmed_files", "mesh_descriptors", "years")
        if self.source != "pubmed-files" and any(getattr(self, name) is not None for name in of_files):
            raise ValueError("`pubmed_files`, `mesh_descriptors` and `years` need `source=pubmed-files`")
        return self

    @field_validator("email")
    @classmethod
    def _check_email(cls, email: str | None) -> str | None:
        if email is not None and not EMAIL.fullmatch(email):
            raise ValueError("not an email address")
        return email

    def identity(self) -> dict[str, Any]:
        """The settings that shape the corpus, for its manifest."""
        others = ("services", "published", "email", "api_key", "attempts", "first_wait", "timeout")
        return self.model_dump(mode="json", exclude={*others, "workers"})

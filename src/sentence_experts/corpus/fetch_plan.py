"""What to fetch: queries by domain, where articles and citations come from, what is left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sentence_experts.corpus.sources.services import Services
from sentence_experts.errors import InputError, UsageError

DOMAIN_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]*$")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")

CitationSource = Literal["icite", "elink", "europepmc"]


class FetchPlan(BaseModel):
    """A fetch, as the command line or a YAML file gives it. All but `services` shapes the corpus."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    domains: dict[str, str] = Field(min_length=1, description="name of a domain -> its query")
    source: Literal["pmc", "pubmed", "pubmed-files", "europepmc"] = Field(
        "pmc",
        description="Where articles come from: pmc (open-access articles, whole, from PMC's bucket), pubmed "
        "(titles, abstracts and MeSH headings of all of PubMed), pubmed-files (the same from PubMed's "
        "baseline and update files; queries are MeSH headings), europepmc (the same from Europe PMC)",
    )
    pubmed_files: Path | None = Field(
        None, description="The folder of PubMed's files; fetched into it (some 50 GB) if it has none"
    )
    mesh_descriptors: Path | None = Field(None, description="NLM's descXXXX.xml, for pubmed-files")
    years: tuple[int, int] | None = Field(None, description="First and last year, for pubmed-files")
    citations: tuple[CitationSource, ...] = Field(
        ("icite",),
        description="Where citations come from besides the articles' own reference lists, any of: icite (the "
        "NIH Open Citation Collection: who cites each paper, whom it cites), elink (the same from NCBI), "
        "europepmc (the same from Europe PMC, two requests a paper), or none",
    )
    citation_table: Path | None = Field(
        None,
        description="An unpacked open_citation_collection.csv of iCite, which is read instead of asking "
        "iCite's API",
    )
    licences: Literal["any", "commercial", "noncommercial"] = Field(
        "any",
        description="Keep articles whose PMC licence allows this: commercial use, noncommercial use, or any",
    )
    retracted: Literal["leave-out", "keep"] = Field(
        "leave-out", description="What to do with retracted articles"
    )
    max_articles: int | None = Field(
        None, ge=1, description="Fetch at most so many articles a domain, drawn by chance with a fixed seed"
    )
    published: dict[str, int] = Field(
        default_factory=dict, description="What a paper counts: a domain -> its papers with an abstract"
    )
    services: Services = Services()

    @field_validator("citations", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = () if value == "none" else tuple(part.strip() for part in value.split(","))
        return value

    @field_validator("domains")
    @classmethod
    def _named(cls, domains: dict[str, str]) -> dict[str, str]:
        for name, query in domains.items():
            if not DOMAIN_NAME.match(name):
                raise ValueError(f"domain name {name!r}: use letters, digits, _ and -, a letter first")
            if not query.strip():
                raise ValueError(f"domain {name}: its query is empty")
        return domains

    @model_validator(mode="after")
    def _fitting(self) -> FetchPlan:
        if self.citation_table is not None and "icite" not in self.citations:
            raise ValueError("citation_table is iCite's: citations must name icite")
        if self.licences != "any" and self.source not in ("pmc", "pubmed"):
            raise ValueError("licences: the licences are PMC's; take source pmc or pubmed")
        of_files = ("pubmed_files", "mesh_descriptors", "years")
        if self.source != "pubmed-files" and any(getattr(self, name) is not None for name in of_files):
            raise ValueError(f"{', '.join(of_files)}: for source pubmed-files only")
        return self

    @classmethod
    def make(cls, **values: Any) -> FetchPlan:
        """A plan of values that the user gave.

        Raises:
            UsageError: one of them is not possible.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError(_first(error)) from error

    @classmethod
    def read(cls, path: Path, **changes: Any) -> FetchPlan:
        """A plan from a YAML file, some of its values changed.

        Raises:
            InputError: no such file, not YAML, or a value that is not possible.
        """
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict):
                raise InputError(f"{path}: a fetch plan is a mapping with 'domains: NAME: QUERY'")
            return cls(**{**content, **changes})
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InputError(f"{path}: cannot be read as a fetch plan: {error}") from error
        except ValidationError as error:
            raise InputError(f"{path}: {_first(error)}") from error

    def identity(self) -> dict[str, Any]:
        """What shapes the corpus, for its manifest."""
        return self.model_dump(mode="json", exclude={"services", "published"})


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def check_email(email: str | None) -> str:
    """The address that services get with every request.

    Raises:
        UsageError: there is none, or it is no address.
    """
    if not email:
        raise UsageError(
            "no email: NCBI wants the address of whoever asks, to write before it blocks; give --email "
            "you@example.org, or set NCBI_EMAIL"
        )
    if not _EMAIL.fullmatch(email):
        raise UsageError(f"--email {email!r} is no email address")
    return email

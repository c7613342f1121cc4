"""Settings of `import_corpus` and `fetch_corpus`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from sentence_experts.config import PHRASES, Config, KeepRetracted, Memory, split_phrases
from sentence_experts.names import DOMAIN
from sentence_experts.recipes import find_plan

EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")

COUNTED = (
    *("subjects", "mesh", "keywords", "topic", "subfield", "field", "journal", "article_type", "kind"),
    *("language", "licence", "year"),
)
"""Columns of the papers whose values can be listed."""
RecordFormats = Literal["openalex", "ris", "nbib", "pubmed-csv", "zotero-csv", "bibtex"]
Workers = Annotated[
    int | None,
    Field(
        ge=1,
        description="Number of processes that parse articles; the result is the same. Default: one per core",
    ),
]


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
    # OpenAlex allows 100 requests a second.
    openalex: Service = Service(url="https://api.openalex.org", per_second=10)


ServiceAddresses = Annotated[
    Services, Field(description="Addresses and rate limits of the services, such as those of a mirror")
]


def check_years(years: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the first and last year of a range, in this order.

    Raises:
        ValueError: they are in the other order.
    """
    if years is not None and years[0] > years[1]:
        raise ValueError(f"the first year must come before the last, got {years[0]},{years[1]}")
    return years


def _check_email(email: str | None) -> str | None:
    if email is not None and not EMAIL.fullmatch(email):
        raise ValueError("not an email address")
    return email


Email = Annotated[
    str | None,
    AfterValidator(_check_email),
    Field(description="Your email address, which NCBI requires. Default: the one in NCBI_EMAIL"),
]
ApiKey = Annotated[
    str | None,
    Field(
        description="NCBI API key: 10 requests per second instead of 3 (default: NCBI_API_KEY); or the key "
        "that openalex requires (default: OPENALEX_API_KEY)",
    ),
]


class ImportConfig(Config):
    """Settings of `import_corpus`: how to read, and which records to keep."""

    format: RecordFormats | None = Field(
        None,
        description="Format of the sources: openalex (works of a snapshot or the API), or exports: ris, "
        "nbib, pubmed-csv, zotero-csv, bibtex. Default: detected from the beginning of each file",
    )
    field: Annotated[tuple[str, ...], PHRASES] = Field(
        (),
        description="Keep works of these OpenAlex fields or subfields: names, `*` for any text, or ids such "
        "as 17; a comma before white space is part of a name",
    )
    years: tuple[int, int] | None = Field(
        None, description="Keep works of these years, first and last, such as 2010,2022"
    )
    full_text: bool = Field(
        False,
        description="Keep the full texts of JATS articles too, to search their passages; a column full_text "
        "of a table of papers is kept anyway",
    )
    complete: Literal["openalex"] | None = Field(
        None,
        description="Fetch the abstracts that papers lack from OpenAlex, by PMID, PMCID or DOI (PubMed's CSV "
        "and many .bib files have none)",
    )
    services: ServiceAddresses = Services()
    email: Email = None
    api_key: ApiKey = None
    workers: Workers = None
    memory: Memory = Field(
        None,
        description="Memory limit of joining papers and references, such as 4GB; the rest goes to disk. "
        "Default: 256MB",
    )

    @field_validator("field", mode="before")
    @classmethod
    def _split_text(cls, value: Any) -> Any:
        return split_phrases(value) if isinstance(value, str) else value

    _check_years = field_validator("years")(check_years)


class FetchConfig(Config):
    """Settings of `fetch_corpus`."""

    domains: dict[str, str] = Field(
        {},
        description="NAME=QUERY: a domain, and the query that finds its articles on the service's website",
    )
    source: Literal["pmc", "openalex"] = Field(
        "pmc",
        description="Where articles come from: pmc (whole open-access articles of PubMed Central), openalex "
        "(works of any field with their references; queries are filters of its API, such as "
        "primary_topic.field.id:17)",
    )
    licences: Literal["any", "commercial", "noncommercial"] = Field(
        "any", description="Keep only articles whose PMC licence allows this use"
    )
    keep_retracted: KeepRetracted = False
    full_text: bool = Field(
        False, description="Keep the full texts too, to search their passages, for source pmc"
    )
    max_articles: int | None = Field(
        None, ge=1, description="Maximum number of articles per domain, sampled at random with a fixed seed"
    )
    published: dict[str, int] = Field(
        {}, description="Published number of papers with an abstract per domain, shown beside the result"
    )
    services: ServiceAddresses = Services()
    email: Email = None
    api_key: ApiKey = None
    workers: Workers = None

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
        only_pmc = {"licences": "any", "full_text": False}
        for name, default in only_pmc.items():
            if self.source != "pmc" and getattr(self, name) != default:
                raise ValueError(f"`{name}` needs `source=pmc`")
        return self

    @classmethod
    def find_file(cls, path: Path | str) -> Path:
        """Return the YAML file at `path`, or the shipped plan of that name ("hallee2025_domains")."""
        return find_plan(path)

    def identity(self) -> dict[str, Any]:
        """Return the settings that shape the corpus, for its manifest."""
        return self.model_dump(mode="json", exclude={"services", "published", "email", "api_key", "workers"})

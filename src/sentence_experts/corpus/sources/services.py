"""The services that `fetch_corpus` uses: their addresses and rate limits."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Service(BaseModel):
    """One service: its base address (no slash at the end), and the maximum number of requests per second and
    under way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    per_second: float = Field(gt=0)
    at_once: int = Field(default=1, ge=1)


ENTREZ_WITH_KEY = 10.0
"""Requests per second that the E-utilities allow with an API key, instead of 3
(E-utilities documentation, "API Keys")."""


class Services(BaseModel):
    """Every service; a mirror or proxy can replace one by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entrez: Service = Service(url="https://eutils.ncbi.nlm.nih.gov/entrez/eutils", per_second=3)
    # A bucket of the AWS Open Data programme, read anonymously; no limit is published.
    pmc_bucket: Service = Service(url="https://pmc-oa-opendata.s3.amazonaws.com", per_second=30, at_once=8)
    # The service allows 100 a second.
    openalex: Service = Service(url="https://api.openalex.org", per_second=10)

    def rates(self) -> dict[str, float]:
        """Host -> requests per second, the lowest rate of the services there."""
        rates: dict[str, float] = {}
        for service in (self.entrez, self.pmc_bucket, self.openalex):
            host = service.url.split("://", 1)[-1].split("/", 1)[0]
            rates[host] = min(service.per_second, rates.get(host, service.per_second))
        return rates

"""The figures that a paper printed, as data: table, row, domain, set of pairs, metric, value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, model_validator

from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED
from sentence_experts.reproduce.protocol import Strict
from sentence_experts.reproduce.reading import read_model

ALL_DOMAINS = "all"


class PublishedTable(Strict):
    """One table of a paper: a figure for each row, set of pairs and metric, all of one domain or of all."""

    table: str
    domain: str = Field(description="a domain, or 'all'")
    columns: dict[str, tuple[str, ...]] = Field(description="set of pairs -> its metrics, in printed order")
    rows: dict[str, tuple[float, ...]]
    decimals: int = Field(4, description="how many decimals are printed")
    named_by_us: tuple[str, ...] = Field((), description="rows that the paper prints without their full name")

    @model_validator(mode="after")
    def _rows_fill_the_columns(self) -> PublishedTable:
        width = sum(map(len, self.columns.values()))
        for row, values in self.rows.items():
            if len(values) != width:
                raise ValueError(f"row {row} has {len(values)} figures for {width} columns")
        return self

    def order(self) -> list[tuple[str, str]]:
        """(set of pairs, metric) of each column."""
        return [(name, metric) for name, metrics in self.columns.items() for metric in metrics]


class MeansOfDomains(Strict):
    """Which figures for all domains are means of the domains' figures, not figures of all pairs together."""

    rows: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()


class DomainSizes(Strict):
    """How many abstracts and pairs a domain has."""

    abstracts: int
    training_pairs: int
    evaluation_pairs: int


class PublishedModel(Strict):
    """A model that a paper lists: parameters in millions, hub id."""

    parameters: int
    hub: str
    active: int | None = None


@dataclass(frozen=True)
class PublishedFigure:
    """One printed number and where it stands.

    Attributes:
        view: how it was averaged, a key of `evaluation.results.ModelResult.view`; for a domain its name.
    """

    table: str
    row: str
    domain: str
    pairs: str
    metric: str
    value: float
    view: str
    decimals: int


class Published(Strict):
    """All that is kept of one paper's results. `notes` names its slips and what was inferred."""

    paper: str
    tables: tuple[PublishedTable, ...]
    notes: tuple[str, ...] = ()
    sizes: dict[str, DomainSizes] = Field(default_factory=dict)
    models: dict[str, PublishedModel] = Field(default_factory=dict)
    means_of_domains: MeansOfDomains = MeansOfDomains()

    @classmethod
    def read(cls, path: Path) -> Published:
        """Read a `published.yaml`.

        Raises:
            InputError: no such file, or a key or value that does not belong there.
        """
        return read_model(cls, path)

    def figures(self) -> Iterator[PublishedFigure]:
        """Every printed figure of every table."""
        for table in self.tables:
            for row, values in table.rows.items():
                for (pairs, metric), value in zip(table.order(), values, strict=True):
                    view = self._view(row, metric) if table.domain == ALL_DOMAINS else table.domain
                    yield PublishedFigure(
                        table.table, row, table.domain, pairs, metric, value, view, table.decimals
                    )

    def _view(self, row: str, metric: str) -> str:
        means = self.means_of_domains
        return PAIR_WEIGHTED_MEAN if row in means.rows and metric in means.metrics else POOLED

"""The figures that MoEE printed, as data: model, prompt, part, type of task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, model_validator

from sentence_experts.moee.vectors import PARTS
from sentence_experts.reproduce.protocol import Strict
from sentence_experts.reproduce.reading import read_model

MEAN = "mean"
TABLES = {"none": "Table 3", "prompteol": "Table 4"}
Figures = dict[str, dict[str, dict[str, tuple[float, ...]]]]  # model -> prompt -> part -> values


@dataclass(frozen=True)
class PublishedFigure:
    """One printed number, in percent, and where it stands."""

    table: str
    prompt: str
    part: str
    kind: str
    value: float


class Published(Strict):
    """All that is kept of the paper's results. `notes` names its slips.

    Attributes:
        metrics: type of task -> what it is measured by, in the order of the averages' columns.
        datasets: type of task -> its datasets.
        models: the paper's name of a model -> its hub id.
        averages: of each type, and the mean of all.
        by_dataset: of each type, its datasets in their order.
    """

    paper: str
    notes: tuple[str, ...] = Field(())
    metrics: dict[str, str]
    datasets: dict[str, tuple[str, ...]]
    models: dict[str, str]
    averages: Figures
    by_dataset: dict[str, dict[str, dict[str, dict[str, tuple[float, ...]]]]]

    @model_validator(mode="after")
    def _columns_are_types(self) -> Published:
        for model, prompts in self.averages.items():
            for prompt, parts in prompts.items():
                if prompt not in TABLES or set(parts) != set(PARTS):
                    raise ValueError(f"averages of {model}, {prompt}: not the parts {', '.join(PARTS)}")
                if any(len(values) != len(self.metrics) + 1 for values in parts.values()):
                    raise ValueError(f"averages of {model}, {prompt}: not a figure a type, and the mean")
        return self

    @classmethod
    def read(cls, path: Path) -> Published:
        """Read a `published.yaml`.

        Raises:
            InputError: no such file, or a key or value that does not belong there.
        """
        return read_model(cls, path)

    def figures(self, model: str) -> Iterator[PublishedFigure]:
        """The averages of a model."""
        for prompt, parts in self.averages[model].items():
            for part, values in parts.items():
                for kind, value in zip([*self.metrics, MEAN], values, strict=True):
                    yield PublishedFigure(TABLES[prompt], prompt, part, kind, value)

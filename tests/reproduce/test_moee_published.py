"""The transcription of MoEE's tables: the datasets' means are the printed averages, except for one slip."""

from __future__ import annotations

import numpy as np
import pytest

from sentence_experts.recipes import RECIPES
from sentence_experts.reproduce.published import Published

PUBLISHED = Published.read(RECIPES / "moee" / "published.yaml")
TYPES = list(PUBLISHED.tasks)
FIGURES = {(one.model, one.prompt, one.row, one.group, one.column): one.value for one in PUBLISHED.figures()}
ROWS = list(dict.fromkeys(place[:3] for place in FIGURES))
SLIP = ("DeepSeekMoE-16b", "none", "hs", "reranking")


def of_datasets(model: str, prompt: str, part: str, kind: str) -> list[float]:
    return [value for place, value in FIGURES.items() if place[:4] == (model, prompt, part, kind)]


@pytest.mark.parametrize("row", ROWS)
def test_averages_are_those_of_the_datasets(row: tuple[str, str, str]) -> None:
    printed = {place[4]: value for place, value in FIGURES.items() if place[:4] == (*row, "")}
    for kind in TYPES[:-1]:
        values = of_datasets(*row, kind)
        datasets = PUBLISHED.tasks[kind].datasets
        assert isinstance(datasets, tuple)
        assert len(values) == len(datasets)
        agrees = abs(np.mean(values) - printed[kind]) <= 0.0101
        assert agrees == ((*row, kind) != SLIP)
    assert np.mean([printed[kind] for kind in TYPES]) == pytest.approx(printed["mean"], abs=0.0101)


def test_every_figure_names_its_table_and_metric() -> None:
    tables = {(one.group or "averages", one.prompt): one.table for one in PUBLISHED.figures()}
    assert tables["averages", "none"] == "Table 3"
    assert tables["averages", "prompteol"] == "Table 4"
    assert tables["sts", "none"] == tables["sts", "prompteol"] == "Table 8"
    metrics = {one.group or one.column: one.metric for one in PUBLISHED.figures()}
    assert metrics["reranking"] == "MAP"
    assert metrics["mean"] == "average"


def test_the_means_of_the_trained_models_are_those_of_their_types() -> None:
    (table,) = Published.read(RECIPES / "moee" / "baselines" / "published.yaml").tables
    assert len(table.rows) == 7
    for *types, mean in table.rows.values():
        assert np.mean(types) == pytest.approx(mean, abs=0.0101)

"""The transcription of MoEE's tables: the datasets' means are the averages in print, but for one slip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

FILE = Path(__file__).resolve().parents[2] / "recipes" / "moee" / "published.yaml"
PUBLISHED = yaml.safe_load(FILE.read_text(encoding="utf-8"))
TYPES = [*PUBLISHED["datasets"], "summarization"]
ROWS = [
    (model, prompt, part)
    for model, prompts in PUBLISHED["averages"].items()
    for prompt, parts in prompts.items()
    for part in parts
]
SLIP = ("DeepSeekMoE-16b", "none", "hs", "reranking")


@pytest.mark.parametrize("row", ROWS)
def test_averages_are_those_of_the_datasets(row):
    model, prompt, part = row
    printed = dict(zip([*TYPES, "mean"], PUBLISHED["averages"][model][prompt][part], strict=True))
    for kind, values in PUBLISHED["by_dataset"][model][prompt][part].items():
        assert len(values) == len(PUBLISHED["datasets"][kind])
        agrees = abs(np.mean(values) - printed[kind]) <= 0.0101
        assert agrees == ((*row, kind) != SLIP)
    assert np.mean([printed[kind] for kind in TYPES]) == pytest.approx(printed["mean"], abs=0.0101)


def test_the_slip_is_the_other_prompts_mean():
    own = PUBLISHED["by_dataset"]["DeepSeekMoE-16b"]
    assert np.mean(own["none"]["hs"]["reranking"]) == pytest.approx(38.26, abs=0.01)
    assert np.mean(own["prompteol"]["hs"]["reranking"]) == pytest.approx(38.13, abs=0.01)


def test_models_parts_and_datasets_are_all_there():
    assert list(PUBLISHED["models"]) == list(PUBLISHED["averages"]) == list(PUBLISHED["by_dataset"])
    assert len(ROWS) == 3 * 2 * 4
    assert sum(map(len, PUBLISHED["datasets"].values())) == 18

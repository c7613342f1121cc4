"""What a search may vary, and one clear line for a space that makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.errors import InputError, UsageError
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.search_space import PREPRINT_SPACE, read_space, without_fixed

SPACE = """
batch_size: {type: int, low: 5, high: 20}
learning_rate: {type: float, low: 1e-6, high: 1.0e-4, log: true}
scheduler: {type: categorical, choices: [cosine, one_cycle]}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "space.yaml"
    file.write_text(text)
    return file


def test_file_describes_each_distribution(tmp_path: Path) -> None:
    space = read_space(written(tmp_path, SPACE))
    assert list(space) == ["batch_size", "learning_rate", "scheduler"]
    integers, floats, categories = (drawn.distribution() for drawn in space.values())
    assert (integers.low, integers.high, integers.log) == (5, 20, False)
    assert (floats.low, floats.high, floats.log) == (1e-6, 1e-4, True)
    assert categories.choices == ("cosine", "one_cycle")


def test_default_space_is_that_of_the_preprint() -> None:
    space = read_space(None)
    assert space == PREPRINT_SPACE
    assert read_space(space) == space
    assert space["batch_size"].extremes == (5, 20)
    for name, drawn in space.items():
        for value in drawn.extremes:
            TrainConfig.model_validate({name: value})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a search space is lines such as"),
        ("- batch_size", "a config is a list of"),
        ("batch_size: [5, 20", "cannot be read"),
        ("batch_size: {low: 5, high: 20}", "batch_size: .*type"),
        ("batch_size: {type: int, low: 5}", r"batch_size\.int\.high"),
        ("batch_size: {type: int, low: 20, high: 5}", "low must be below high"),
        ("warmup: {type: float, low: 0, high: 0.5, log: true}", "above 0 with log"),
        ("batch_size: {type: int, low: 1, high: 20}", "batch_size: 1 is not allowed"),
        ("batch: {type: int, low: 5, high: 20}", "batch: no such setting; did you mean batches"),
        ("scheduler: {type: categorical, choices: [cosine, square]}", "'square' is not allowed"),
        ("scheduler: {type: categorical, choices: []}", "choices"),
        (
            "epochs: {type: float, low: 1, high: 2}\nmax_steps: {type: int, low: 1, high: 9}",
            "max_steps overrides epochs",
        ),
    ],
)
def test_a_bad_space_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_space(written(tmp_path, text))
    assert "space.yaml" in str(refused.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        read_space(tmp_path / "nowhere.yaml")


def test_given_settings_are_not_searched() -> None:
    space = read_space(None)
    left = without_fixed(space, TrainConfig(batch_size=8, max_steps=9), ("batch_size", "max_steps"))
    assert list(left) == ["warmup"]
    with pytest.raises(UsageError, match="nothing to search"):
        without_fixed(space, TrainConfig(max_steps=9), ("batch_size", "warmup"))

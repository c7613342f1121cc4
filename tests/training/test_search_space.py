"""What a search may vary, and one clear line for a space that makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.errors import InputError, UsageError
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.tune import ends_of, read_space

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
    space = read_space(written(tmp_path, SPACE), TrainConfig())
    assert list(space) == ["batch_size", "learning_rate", "scheduler"]
    integers, floats, categories = space.values()
    assert (integers.low, integers.high, integers.log) == (5, 20, False)
    assert (floats.low, floats.high, floats.log) == (1e-6, 1e-4, True)
    assert categories.choices == ("cosine", "one_cycle")


def test_default_space_is_that_of_the_preprint() -> None:
    space = read_space(None, TrainConfig())
    assert list(space) == ["batch_size", "warmup", "epochs"]
    assert ends_of(space["batch_size"]) == (5, 20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no settings; give lines"),
        ("- batch_size", "a config is a list of"),
        ("batch_size: [5, 20", "cannot be read"),
        ("batch_size: {low: 5, high: 20}", "batch_size: .*type"),
        ("batch_size: {type: int, low: 5}", "batch_size: .*high"),
        ("batch_size: {type: int, low: 20, high: 5}", "batch_size: .*low <= high"),
        ("warmup: {type: float, low: 0, high: 0.5, log: true}", "warmup: .*low > 0"),
        ("batch_size: {type: int, low: 1, high: 20}", r"batch_size: .*\(got 1\)"),
        ("batch: {type: int, low: 5, high: 20}", "batch: no such setting; did you mean batches"),
        ("scheduler: {type: categorical, choices: [cosine, square]}", "scheduler: .*'square'"),
        ("scheduler: {type: categorical, choices: []}", "choices"),
        (
            "epochs: {type: float, low: 1, high: 2}\nmax_steps: {type: int, low: 1, high: 9}",
            "max_steps overrides epochs",
        ),
    ],
)
def test_a_bad_space_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_space(written(tmp_path, text), TrainConfig())
    assert "space.yaml" in str(refused.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        read_space(tmp_path / "nowhere.yaml", TrainConfig())


def test_given_settings_are_not_searched() -> None:
    assert list(read_space(None, TrainConfig(batch_size=8, max_steps=9))) == ["warmup"]
    with pytest.raises(UsageError, match="nothing to search"):
        read_space(None, TrainConfig(batch_size=8, warmup=0.1, max_steps=9))

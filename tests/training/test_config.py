"""A config is read, overridden and refused key by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.errors import InputError, UsageError
from sentence_experts.training.config import TrainConfig


def test_flags_go_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("batch_size: 8\nseed: 3\n")
    config = TrainConfig.read(tmp_path / "c.yaml", {"seed": 4})
    assert (config.batch_size, config.seed, config.scale) == (8, 4, TrainConfig().scale)


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    config = TrainConfig(batch_size=8, max_steps=3, bf16=True)
    config.write(tmp_path / "c.yaml")
    assert TrainConfig.read(tmp_path / "c.yaml", {}) == config


def test_domains_are_a_list_or_names_between_commas(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("domains: [copd, skin cancer]\n")
    config = TrainConfig.read(tmp_path / "c.yaml", {})
    assert config.domains == ["copd", "skin cancer"]
    assert TrainConfig.read(None, {"domains": "copd, skin cancer"}) == config
    with pytest.raises(UsageError, match="--domains"):
        TrainConfig.read(None, {"domains": []})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batchsize: 8", "known keys: epochs"),
        ("batch_size: many", "batch_size"),
        ("batch_size: 1", "greater than or equal to 2"),
        ("- a\n- b", "key: value"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_faulty_config_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError, match=r"c\.yaml") as caught:
        TrainConfig.read(tmp_path / "c.yaml", {})
    assert message in str(caught.value)


def test_a_faulty_flag_is_named_as_a_flag() -> None:
    with pytest.raises(UsageError, match="--learning-rate"):
        TrainConfig.read(None, {"learning_rate": -1})

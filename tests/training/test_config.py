"""A config is read, overridden and refused key by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.errors import InputError, UsageError
from sentence_experts.training.config import TrainConfig


def test_routes_are_a_list_or_names_between_commas(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("routes: [copd, skin cancer]\n")
    config = TrainConfig.read(tmp_path / "c.yaml")
    assert config.routes == ["copd", "skin cancer"]
    assert TrainConfig.of(None, routes="copd, skin cancer") == config
    with pytest.raises(UsageError, match="`routes`"):
        TrainConfig.of(None, routes=[])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batchsize: 8", "did you mean batch_size or batches?"),
        ("colour: 8", "known: routes"),
        ("batch_size: many", "batch_size"),
        ("batch_size: 1", "greater than or equal to 2"),
        ("- a\n- b", "key: value"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_faulty_config_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError, match=r"c\.yaml") as caught:
        TrainConfig.read(tmp_path / "c.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "argmax_target", "temperature": 0.2}, "`temperature` has no effect"),
        ({"loss": "learned_temperature", "temperatures": {"copd": 0.2}}, "`temperatures` has no effect"),
        ({"warmup": 0.2, "warmup_steps": 3}, "`warmup` and `warmup_steps`"),
        ({"only_expert": "a", "freeze": "shared"}, "`only_expert` and `freeze`"),
        ({"only_expert": "a", "lora_rank": 2}, "`only_expert` and `lora_rank`"),
        ({"freeze": "shared", "lora_rank": 2}, "`lora_rank` and `freeze`"),
        (
            {"curriculum": "static", "batches": "mixed", "temperature": 0.2},
            "`curriculum=static` has no effect beside",
        ),
        ({"temperatures": {"copd": 0.0}}, "`temperatures`: .*greater than 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        TrainConfig.of(None, **options)
    assert "(got {" not in str(refused.value) or "temperatures" in options

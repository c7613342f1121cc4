"""A run with an adapter: the frozen base stays bit-equal, and a killed run goes on with the same adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.saved_weights import weights_of
from sentence_experts.errors import UsageError
from sentence_experts.models.loading import load
from sentence_experts.models.surgery.extend import extend
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.run import train

SHORT = TrainConfig(
    batch_size=8,
    max_steps=12,
    eval_steps=4,
    learning_rate=1e-3,
    lora_rank=2,
    patience=9,
    keep_checkpoints=True,
)


@pytest.fixture(scope="module")
def finished(pairs: Pairs, experts_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lora") / "run"
    train(str(experts_model), pairs, SHORT, out)
    return out


def test_checkpoints_hold_adapter_and_experts_and_the_base_unmoved(
    finished: Path, experts_model: Path
) -> None:
    before = weights_of(experts_model)
    after = weights_of(finished / "checkpoints" / "checkpoint-12")
    frozen = {name.replace(".parametrizations.weight.original", ".weight"): name for name in after
              if name.endswith(".original")}  # fmt: skip
    assert len(frozen) == 2 * 4  # blocks, projections
    assert all(torch.equal(before[name], after[kept]) for name, kept in frozen.items())
    assert all(weight.any() for name, weight in after.items() if name.endswith(".0.up"))
    experts = [name for name in before if ".experts." in name]
    assert not any(torch.equal(before[name], after[name]) for name in experts)


def test_the_merged_model_is_the_best_checkpoint(finished: Path) -> None:
    text = ["rice yield in drought"]
    routed = {"prompt_name": "crops"}
    every = [load(folder, device="cpu") for folder in sorted(finished.glob("checkpoints/checkpoint-*"))]
    merged = load(finished / "model", device="cpu").encode(text, **routed)
    assert min(np.abs(one.encode(text, **routed) - merged).max() for one in every) < 1e-5


@pytest.mark.parametrize("kind", ["head", "adapter"])
def test_heads_and_adapters_are_on_a_base_that_stays(pairs: Pairs, plain_model: Path, kind: Any) -> None:
    model = extend(plain_model, routes=["crops", "neuro"], kind=kind)
    with pytest.raises(UsageError, match="`lora_rank`: heads and adapters are trained on a base that stays"):
        train(model, pairs, SHORT)


def test_an_interrupted_run_leaves_no_adapter_in_the_model(
    pairs: Pairs, experts_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(experts_model, device="cpu")
    next(model.parameters()).requires_grad_(False)
    before = {
        name: (weight.requires_grad, weight.detach().clone()) for name, weight in model.named_parameters()
    }

    def interrupt(trainer: Any, *_: Any) -> None:
        trainer.model.train()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sentence_experts.training.run._train", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(model, pairs, SHORT)
    after = {name: (weight.requires_grad, weight) for name, weight in model.named_parameters()}
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name][1], weight) for name, (_, weight) in before.items())
    assert {name: trained for name, (trained, _) in after.items()} == {
        name: trained for name, (trained, _) in before.items()
    }
    assert train(model, pairs, SHORT, max_steps=1).steps == 1

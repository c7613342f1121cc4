"""Experts that stay in the CPU's memory: the same training, with only the called ones copied."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from helpers.saved_weights import weights_of
from sentence_experts.errors import UsageError
from sentence_experts.models.layers import experts
from sentence_experts.models.layers.dispatch import Dispatch
from sentence_experts.models.layers.experts import Experts, keep_experts_on_cpu
from sentence_experts.models.layers.weight_names import EXPERTS
from sentence_experts.models.loading import load
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.training import trainer
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.run import train

SHORT = TrainConfig(batch_size=8, max_steps=4, eval_steps=2, learning_rate=1e-3, keep="last")
WAYS: dict[str, dict[str, Any]] = {
    "batches of one route": {"batches": "homogeneous"},
    "mixed batches": {"batches": "mixed"},
    "gradient caching": {"batches": "mixed", "cache_mini_batch": 3},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "one expert": {"only_expert": "crops"},
}


class Copies(TorchFunctionMode):
    """Notes how many numbers are copied to a device."""

    def __init__(self, device: str) -> None:
        self.device, self.numbers = device, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.to and torch.device(args[1]).type == self.device:
            self.numbers += args[0].numel()
        return func(*args, **(kwargs or {}))


def small_experts(count: int) -> Experts:
    return Experts(nn.ModuleDict({"mlp": nn.Linear(4, 4)}) for _ in range(count))


def through_mlp(expert: nn.ModuleDict, tokens: Tensor) -> Tensor:
    done: Tensor = expert["mlp"](tokens)
    return done


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are really copied, as they are for a GPU; to the same device they would not be."""
    monkeypatch.setattr(experts, "copy_to", lambda weight, device: weight.to(device, copy=True))


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("way", WAYS)
def test_the_trained_model_is_the_same(way: str, experts_model: Path, pairs: Pairs, tmp_path: Path) -> None:
    for name, offload in (("plain", False), ("offloaded", True)):
        train(experts_model, pairs, SHORT, tmp_path / name, offload_experts=offload, **WAYS[way])
    plain, offloaded = (weights_of(tmp_path / name / "model") for name in ("plain", "offloaded"))
    before = weights_of(experts_model)
    assert plain.keys() == offloaded.keys()
    for name, weight in plain.items():
        assert torch.equal(weight, offloaded[name]), name
    assert any(not torch.equal(weight, before[name]) for name, weight in plain.items())
    losses = [
        json.loads((tmp_path / name / "run.json").read_text())["losses"] for name in ("plain", "offloaded")
    ]
    assert losses[0] == losses[1]


def test_a_model_moves_without_its_experts() -> None:
    several = small_experts(2)
    model = nn.ModuleDict({"shared": nn.Linear(4, 4), "experts": several})
    keep_experts_on_cpu(model)
    model.to("meta")
    assert model["shared"].weight.device.type == "meta"
    assert {weight.device.type for weight in several.parameters()} == {"cpu"}
    model.to(torch.float64)
    assert {weight.dtype for weight in several.parameters()} == {torch.float64}
    keep_experts_on_cpu(model, False)
    model.to("meta")
    assert {weight.device.type for weight in several.parameters()} == {"meta"}


def test_only_the_called_experts_are_copied() -> None:
    several = small_experts(5)
    keep_experts_on_cpu(several)
    tokens = torch.empty(6, 4, device="meta")
    for slices in (((3, 0, 6),), ((1, 0, 2), (4, 2, 6))):
        with Copies("meta") as copies:
            done = several.run(tokens, Dispatch(None, slices), through_mlp)
        assert done.device.type == "meta"
        assert copies.numbers == len(slices) * (4 * 4 + 4)


@pytest.mark.usefixtures("copied")
def test_gradients_come_back_to_the_called_experts_alone() -> None:
    several, plan, tokens = small_experts(3), Dispatch(None, ((0, 0, 2), (2, 2, 6))), torch.randn(6, 4)
    found = []
    for kept in (False, True):
        keep_experts_on_cpu(several, kept)
        several.zero_grad()
        several.run(tokens, plan, through_mlp).square().sum().backward()
        found.append([weight.grad for weight in several.parameters()])
    for plain, offloaded in zip(*found, strict=True):
        assert (plain is None) == (offloaded is None)
        assert plain is None or torch.equal(plain, offloaded)
    assert [gradient is None for gradient in found[1]] == [False, False, True, True, False, False]


def test_the_model_can_be_used_as_before_afterwards(experts_model: Path, pairs: Pairs) -> None:
    model = load(experts_model)
    train(model, pairs, SHORT, offload_experts=True)
    assert {weight.device.type for weight in model.parameters()} == {"cpu"}
    model.to("meta")
    assert {weight.device.type for weight in model.parameters()} == {"meta"}


def test_without_a_gpu_it_says_that_nothing_changes(
    experts_model: Path, pairs: Pairs, caplog: pytest.LogCaptureFixture
) -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is a GPU")
    with caplog.at_level(logging.INFO):
        train(experts_model, pairs, SHORT, offload_experts=True)
    assert "no GPU here" in caplog.text


def test_what_cannot_be_offloaded(
    minilm: str, experts_model: Path, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = experts_model.with_name(f"{experts_model.name}-plain")
    with pytest.raises(UsageError, match="`offload_experts`: the model has no experts in its blocks"):
        train(str(plain), pairs, SHORT, offload_experts=True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match="only for one process on one GPU"):
        train(experts_model, pairs, SHORT, offload_experts=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_experts_stay_on_the_cpu(
    experts_model: Path, pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[bool, str]] = set()
    stepped = trainer.RunCallback.on_step_end

    def note(callback: Any, *args: Any, **kwargs: Any) -> None:
        model, state = kwargs["model"], kwargs["optimizer"].state
        for name, weight in model.named_parameters():
            for tensor in (weight, weight.grad, *state.get(weight, {}).values()):
                if tensor is not None and tensor.dim():
                    seen.add((EXPERTS in name, tensor.device.type))
        stepped(callback, *args, **kwargs)

    train(experts_model, pairs, SHORT, tmp_path / "plain")
    monkeypatch.setattr(trainer.RunCallback, "on_step_end", note)
    train(experts_model, pairs, SHORT, tmp_path / "offloaded", offload_experts=True)
    assert seen == {(True, "cpu"), (False, "cuda")}
    before = weights_of(experts_model)
    plain, offloaded = (weights_of(tmp_path / name / "model") for name in ("plain", "offloaded"))
    moved = max(float((plain[name] - before[name]).abs().max()) for name in plain)
    apart = max(float((plain[name] - offloaded[name]).abs().max()) for name in plain)
    assert apart < 0.02 * moved

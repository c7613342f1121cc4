"""Whole runs with each of the papers' options: they learn, resume exactly, and say what they did."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.killed_run import run_until_killed
from helpers.saved_weights import weights_of
from sentence_experts.errors import UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.run import train

SHORT = TrainConfig(batch_size=8, max_steps=9, eval_steps=3, learning_rate=1e-3, keep_checkpoints=True)
# Everything that keeps a state: the temperature, the routers, two rates of one cycle, both betas.
PREPRINT = SHORT.model_copy(
    update={
        "loss": "learned_temperature",
        "temperature": 0.5,
        "scheduler": "one_cycle",
        "warmup_steps": 3,
        "router_learning_rate": 3e-3,
        "cache_mini_batch": 4,
    }
)


@pytest.fixture(scope="module")
def router_model(experts_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("router") / "learned"
    plain = experts_model.with_name(f"{experts_model.name}-plain")
    encoder = sentence_experts.extend(str(plain), ["crops", "neuro"], route="none", router="learned")
    encoder.save(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def preprint_run(pairs: Pairs, router_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "preprint"
    train(str(router_model), pairs, PREPRINT, out)
    return out


def weights(run: Path) -> dict[str, torch.Tensor]:
    return weights_of(run / "model")


@pytest.mark.slow
def test_the_temperature_is_trained_and_reported(preprint_run: Path) -> None:
    result = json.loads((preprint_run / "run.json").read_text())
    best = preprint_run / "checkpoints" / f"checkpoint-{result['kept_step']}" / "loss.safetensors"
    log_scale = float(load_file(best)["log_scale"])
    assert result["learned"]["temperature"] == pytest.approx(math.exp(-log_scale))
    # Adam moves it by about the rate a step.
    assert 1e-5 < abs(log_scale - math.log(2.0)) < PREPRINT.learning_rate * PREPRINT.max_steps
    assert (
        f"{result['learned']['temperature']:.4g} at the end"
        in (preprint_run / "model" / "README.md").read_text()
    )


def test_weight_decay_does_not_pull_at_the_temperature(preprint_run: Path) -> None:
    last = preprint_run / "checkpoints" / f"checkpoint-{PREPRINT.max_steps}"
    optimizer = torch.load(last / "optimizer.pt", weights_only=True)
    (scalar,) = (number for number, state in optimizer["state"].items() if state["exp_avg"].ndim == 0)
    (decay,) = (group["weight_decay"] for group in optimizer["param_groups"] if scalar in group["params"])
    assert decay == 0
    assert any(group["weight_decay"] == PREPRINT.weight_decay for group in optimizer["param_groups"])


def test_the_routers_learn_their_domains(pairs: Pairs, preprint_run: Path, router_model: Path) -> None:
    texts = {row["anchor"]: int(row["domain"] == "neuro") for row in pairs.split("train").to_pylist()}
    domains = torch.tensor(list(texts.values()))

    def loss(folder: Path) -> float:
        model = SentenceTransformer(str(folder), device="cpu").eval()
        inputs = model.preprocess(list(texts))
        inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            logits = model[0].auto_model(**inputs).router_logits
        return float(sum(torch.nn.functional.cross_entropy(block, domains) for block in logits))

    assert loss(preprint_run / "model") < loss(router_model)


def _train_in_child(model: str, pairs: Path, out: Path) -> None:
    train(model, Pairs.open(pairs), PREPRINT, out)


@pytest.mark.slow
def test_killed_run_with_temperature_and_routers_resumes_to_the_same_model(
    preprint_run: Path, pairs: Pairs, router_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    run_until_killed(_train_in_child, (str(router_model), pairs.path, out), out, "checkpoints/checkpoint-*")
    train(str(router_model), pairs, PREPRINT, out)
    one, other = weights(preprint_run), weights(out)
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
    last = f"checkpoints/checkpoint-{PREPRINT.max_steps}/loss.safetensors"
    scales = [float(load_file(run / last)["log_scale"]) for run in (preprint_run, out)]
    assert scales[0] == pytest.approx(scales[1], abs=1e-7)


def test_the_rate_goes_through_one_cycle(preprint_run: Path) -> None:
    last = preprint_run / "checkpoints" / f"checkpoint-{PREPRINT.max_steps}"
    state = torch.load(last / "scheduler.pt", weights_only=True)
    optimizer = torch.load(last / "optimizer.pt", weights_only=True)
    assert state["total_steps"] == PREPRINT.max_steps
    peaks = {group["max_lr"] for group in optimizer["param_groups"]}
    assert peaks == {
        PREPRINT.learning_rate,
        PREPRINT.router_learning_rate,
    }
    for group in optimizer["param_groups"]:
        assert group["initial_lr"] == group["max_lr"] / 25


def test_one_cycle_needs_steps_to_climb(pairs: Pairs, experts_model: Path, tmp_path: Path) -> None:
    for scheduler in ("one_cycle", "linear"):
        config = SHORT.model_copy(update={"scheduler": scheduler, "warmup_steps": 9})
        with pytest.raises(UsageError, match="`warmup_steps"):
            train(str(experts_model), pairs, config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_warmup_steps_are_counted(pairs: Pairs, experts_model: Path, tmp_path: Path) -> None:
    update = {"scheduler": "constant_with_warmup", "warmup_steps": 3, "max_steps": 4, "eval_steps": 2}
    config = SHORT.model_copy(update=update)
    train(str(experts_model), pairs, config, tmp_path / "run")
    optimizer = torch.load(tmp_path / "run/checkpoints/checkpoint-2/optimizer.pt", weights_only=True)
    assert optimizer["param_groups"][0]["lr"] == pytest.approx(config.learning_rate * 2 / 3)


@pytest.mark.slow
def test_another_loss_lowers_itself(pairs: Pairs, experts_model: Path, tmp_path: Path) -> None:
    config = SHORT.model_copy(update={"loss": "argmax_target", "max_steps": 40, "eval_steps": 20})
    losses = train(str(experts_model), pairs, config, tmp_path / "run").losses
    assert losses[-1][1] < losses[0][1]
    assert "most similar pair" in (tmp_path / "run" / "model" / "README.md").read_text()

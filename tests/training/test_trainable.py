"""Frozen weights stay as they are to the bit, weight decay and all; the rest moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.saved_weights import weights_of
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.loading import load
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.run import train
from sentence_experts.training.trainable import check_settings

SHORT = TrainConfig(batch_size=8, max_steps=4, eval_steps=4, learning_rate=1e-3, weight_decay=0.5, warmup=0)
pytestmark = pytest.mark.usefixtures("last_step_is_best")
EMBEDDINGS = "embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def plain(experts_model: Path) -> str:
    return str(experts_model.with_name(f"{experts_model.name}-plain"))


def extended(plain: str, folder: Path, **options) -> Path:
    sentence_experts.extend(plain, ["crops", "neuro"], **options).save(str(folder), create_model_card=False)
    return folder


def moved(before: Path, run: Path) -> set[str]:
    one, other = (weights_of(folder) for folder in (before, run / "model"))
    assert one.keys() == other.keys()
    return {name for name in one if not torch.equal(one[name], other[name])}


def moved_rows(before: Path, run: Path) -> list[int]:
    one, other = (weights_of(folder)[EMBEDDINGS] for folder in (before, run / "model"))
    return (one != other).any(dim=1).nonzero().flatten().tolist()


def row_of(folder: Path, route: str) -> int:
    model = SentenceTransformer(str(folder), device="cpu")[0].auto_model
    return next(r.token_ids[0] for r in model.routes if r.name == route)


@pytest.mark.parametrize("layers", ["all", pytest.param("alternate", marks=pytest.mark.slow), "none"])
def test_one_expert_and_its_token_are_all_that_moves(
    pairs: Pairs, plain: str, tmp_path: Path, layers: str
) -> None:
    model = extended(plain, tmp_path / "model", layers=layers)
    config = SHORT.model_copy(update={"only_expert": "neuro"})
    train(str(model), pairs, config, tmp_path / "run")
    names = moved(model, tmp_path / "run")
    experts = {name for name in weights_of(model) if ".experts.1." in name}
    assert bool(experts) == (layers != "none")
    assert names == experts | {EMBEDDINGS}
    assert moved_rows(model, tmp_path / "run") == [row_of(model, "neuro")]


@pytest.mark.slow
def test_a_prefix_has_no_row_of_its_own(pairs: Pairs, plain: str, tmp_path: Path) -> None:
    model = extended(plain, tmp_path / "model", route="prefix")
    config = SHORT.model_copy(update={"only_expert": "crops"})
    train(str(model), pairs, config, tmp_path / "run")
    assert {".experts.0." in name for name in moved(model, tmp_path / "run")} == {True}
    dense = extended(plain, tmp_path / "dense", route="prefix", layers="none")
    with pytest.raises(UsageError, match="nothing is left to train"):
        train(str(dense), pairs, config, tmp_path / "other")


@pytest.mark.parametrize("route", ["token", "prefix"])
def test_one_expert_is_trained_on_its_own_domains_alone(
    pairs: Pairs, plain: str, tmp_path: Path, route: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = extended(plain, tmp_path / "model", route=route)
    # Texts of another expert bring a prefix model no gradient at all.
    config = SHORT.model_copy(update={"only_expert": "neuro", "batches": "homogeneous"})
    result = train(str(model), pairs, config, tmp_path / "run")
    assert "trained on these routes' data only: neuro" in capsys.readouterr().err
    assert result.steps == SHORT.max_steps
    assert "eval_validation_neuro/f1_max" in result.history[0]
    assert "eval_validation_crops/f1_max" not in result.history[0]
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "# A text encoder for neuro\n" in card
    assert "\n32 pairs" in card
    with pytest.raises(UsageError, match="neuro`: none of the routes crops leads to it"):
        train(str(model), pairs, config.model_copy(update={"routes": ["crops"]}), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_frozen_shared_weights_stay(pairs: Pairs, plain: str, tmp_path: Path) -> None:
    model = extended(plain, tmp_path / "model")
    train(str(model), pairs, SHORT.model_copy(update={"freeze": "shared"}), tmp_path / "run")
    experts = {name for name in weights_of(model) if ".experts." in name}
    assert moved(model, tmp_path / "run") == experts | {EMBEDDINGS}
    assert moved_rows(model, tmp_path / "run") == sorted(row_of(model, name) for name in ("crops", "neuro"))

    learned = extended(plain, tmp_path / "learned", route="none", router="learned")
    train(str(learned), pairs, SHORT.model_copy(update={"freeze": "shared"}), tmp_path / "other")
    routers = {name for name in weights_of(learned) if ".router." in name}
    assert routers
    assert moved(learned, tmp_path / "other") == experts | routers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance_loss": 0.1}, "`balance_loss`"),
        ({"route_by": "domain"}, "`route_by`"),
        ({"router_loss": 0.5}, "`router_loss`"),
        ({"router_learning_rate": 1e-5}, "`router_learning_rate`"),
        ({"max_length": 10_000}, "`max_length=10000`: the model reads [0-9]+ tokens at most"),
    ],
)
def test_options_that_mean_nothing_are_refused(plain: str, options: dict, message: str) -> None:
    dense = SentenceTransformer(plain, device="cpu")
    check_settings(dense, TrainConfig())
    with pytest.raises(UsageError, match=message):
        check_settings(dense, TrainConfig(**options))


def test_argmax_targets_of_vectors_of_length_1_are_told(plain: str, caplog: pytest.LogCaptureFixture) -> None:
    config = TrainConfig(loss="argmax_target")
    for normalize in (False, True):
        check_settings(sentence_experts.extend(plain, ["a"], normalize=normalize), config)
        assert ("takes dot products" in caplog.text) == normalize


@pytest.mark.parametrize("options", [{"route_by": "domain"}, {"router_loss": 0.5}])
def test_options_of_sequence_routers_are_refused_of_token_routers(plain: str, options: dict) -> None:
    model = sentence_experts.extend(plain, ["crops", "neuro"], route="none", router="token")
    check_settings(model, TrainConfig(balance_loss=0.1))
    with pytest.raises(UsageError, match=f"`{next(iter(options))}`: the model's router chooses by token"):
        check_settings(model, TrainConfig(**options))


def test_instructions_of_domains_are_refused(pairs: Pairs, plain: str) -> None:
    with pytest.raises(UsageError, match="`instructions=False`: domains have no instructions"):
        train(plain, pairs, SHORT.model_copy(update={"instructions": False}))


def test_parts_that_a_model_lacks_are_refused(pairs: Pairs, plain: str, tmp_path: Path) -> None:
    for options, message in (({"freeze": "shared"}, "no experts"), ({"only_expert": "x"}, "no experts")):
        with pytest.raises(UsageError, match=message):
            train(plain, pairs, SHORT.model_copy(update=options), tmp_path / "run")
    model = extended(plain, tmp_path / "model")
    with pytest.raises(UsageError, match="experts are crops, neuro"):
        train(str(model), pairs, SHORT.model_copy(update={"only_expert": "x"}), tmp_path / "run")
    learned = extended(plain, tmp_path / "learned", route="none", router="learned")
    with pytest.raises(UsageError, match="learned router"):
        train(str(learned), pairs, SHORT.model_copy(update={"only_expert": "crops"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("alone", [None, "neuro"])
def test_heads_are_trained_on_a_base_that_stays(
    pairs: Pairs, plain: str, tmp_path: Path, alone: str | None
) -> None:
    model = tmp_path / "model"
    sentence_experts.extend(plain, routes=["crops", "neuro"], kind="head").save(str(model))
    config = SHORT.model_copy(update={"only_expert": alone})
    train(str(model), pairs, config, tmp_path / "run")
    numbers = [1] if alone else [0, 1]
    expected = {f"heads.{number}.{kind}" for number in numbers for kind in ("weight", "bias")}
    assert moved(model, tmp_path / "run") == expected


def test_experts_are_trained_beside_heads(pairs: Pairs, plain: str, tmp_path: Path) -> None:
    heads = sentence_experts.extend(plain, routes=["crops"], kind="head")
    sentence_experts.add_route(heads, "neuro").save(str(tmp_path / "model"))
    train(str(tmp_path / "model"), pairs, SHORT, tmp_path / "run")
    names = moved(tmp_path / "model", tmp_path / "run")
    assert {name for name in names if ".experts.1." in name}
    assert all(".experts.1." in name or name.startswith("heads.") or name == EMBEDDINGS for name in names)
    assert moved_rows(tmp_path / "model", tmp_path / "run") == [row_of(tmp_path / "model", "neuro")]


def test_adapters_are_trained_on_a_base_that_stays(pairs: Pairs, plain: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    sentence_experts.extend(plain, routes=["crops", "neuro"], kind="adapter", rank=2).save(str(model))
    for alone, numbers in ((None, "01"), ("neuro", "1")):
        config = SHORT.model_copy(update={"only_expert": alone})
        train(str(model), pairs, config, tmp_path / f"run-{alone}")
        names = moved(model, tmp_path / f"run-{alone}")
        assert {name.split(".adapters.")[1][0] for name in names} == set(numbers)


def test_a_model_whose_weights_are_all_frozen_is_refused(pairs: Pairs, plain: str, tmp_path: Path) -> None:
    frozen = load(plain).requires_grad_(False)
    with pytest.raises(UsageError, match="nothing is left to train: all weights are frozen"):
        train(frozen, pairs, SHORT, tmp_path / "run")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_coarse_weights_are_trained_as_float32(pairs: Pairs, plain: str, tmp_path: Path, dtype: Any) -> None:
    half = load(plain, dtype=dtype)
    with pytest.raises(UsageError, match=f"^{dtype} is too coarse to train in: train `load"):
        train(half, pairs, SHORT, tmp_path / "refused")
    half.save(str(tmp_path / "half"))
    train(str(tmp_path / "half"), pairs, SHORT, tmp_path / "run")
    before, after = load(tmp_path / "half"), load(tmp_path / "run" / "model")
    assert after.dtype == torch.float32
    weights = dict(before.named_parameters())
    changes = [(each - weights[name].float()).abs().max() for name, each in after.named_parameters()]
    assert 0 < max(changes) <= 3 * SHORT.learning_rate * SHORT.max_steps


def test_prompts_of_a_dense_model_can_be_taken_out(pairs: Pairs, plain: str) -> None:
    model = load(plain)
    model.prompts = {"query": "query: ", "document": "passage: "}
    with pytest.raises(RouteError, match=r"it has document, query; `model.prompts = \{\}` takes them out"):
        train(model, pairs, SHORT)
    model.prompts = {}
    assert train(model, pairs, SHORT).history


def test_a_model_with_some_of_its_experts_is_not_trained(experts_model: Path, pairs_folder: Path) -> None:
    part = load(experts_model, routes=["crops"])
    with pytest.raises(UsageError, match="only some experts are loaded"):
        train(part, pairs_folder, max_steps=1)

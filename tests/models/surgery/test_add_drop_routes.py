"""Experts that come later, or go: all other routes stay as they are, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.saving import save
from sentence_experts.models.surgery.add_drop_routes import add_route, drop_route

NAMES = ["copd", "cvd", "skin cancer"]


ONE_FAMILY = pytest.mark.parametrize("family", ["bert"])


def vectors(encoder: SentenceTransformer, texts: list[str], name: str) -> torch.Tensor:
    return encoder.encode(texts, prompt_name=name, convert_to_tensor=True)


def assert_other_routes_equal(before: ExpertEncoder, after: ExpertEncoder, texts: list[str]) -> None:
    for name in set(before.experts) & set(after.experts):
        assert torch.equal(vectors(before, texts, name), vectors(after, texts, name)), name


@pytest.mark.parametrize("seed_from", ["base", "average", "cvd"])
def test_adding_leaves_the_other_routes(
    mixed: ExpertEncoder, base: SentenceTransformer, texts: list[str], seed_from: str, tmp_path: Path
) -> None:
    old = {name: weight.clone() for name, weight in mixed[0].auto_model.named_parameters()}
    grown = add_route(mixed, "crops", seed_from=seed_from, base=base if seed_from == "base" else None)
    assert grown.experts == (*NAMES, "crops")
    assert_other_routes_equal(mixed, grown, texts)
    new = dict(grown[0].auto_model.named_parameters())
    for name, weight in old.items():
        rows = len(mixed.tokenizer) if "embeddings" in name and "weight" in name else len(weight)
        assert torch.equal(new[name][:rows], weight[:rows]), name
    save(grown, tmp_path / "model")
    again = sentence_experts.load(tmp_path / "model", device="cpu")
    assert torch.equal(vectors(again, texts, "crops"), vectors(grown, texts, "crops"))
    assert_other_routes_equal(mixed, again, texts)


def test_what_a_seed_gives(mixed: ExpertEncoder, base: SentenceTransformer, texts: list[str]) -> None:
    """The base's expert gives the base's vectors, but for norms and shared weights; a copy its original's."""
    from_base = add_route(mixed, "crops", seed_from="base", base=base)
    assert np.abs(from_base.encode(texts, prompt_name="crops") - base.encode(texts)).max() <= 1e-6
    copy = add_route(mixed, "crops", seed_from="cvd")
    assert torch.equal(vectors(copy, texts, "crops"), vectors(mixed, texts, "cvd"))
    average = add_route(mixed, "crops", seed_from="average")[0].auto_model
    weights = average.state_dict()
    key = next(key for key in weights if ".experts.3." in key)
    parts = [weights[key.replace(".experts.3.", f".experts.{number}.")] for number in range(3)]
    assert torch.allclose(weights[key], sum(parts) / 3, atol=1e-6)
    rows = average.get_input_embeddings().weight[[route.token_ids[0] for route in average.routes]]
    assert torch.allclose(rows[3], rows[:3].mean(dim=0), atol=1e-6)


def test_adding_an_instruction(
    base: SentenceTransformer, scatter: Callable[..., ExpertEncoder], texts: list[str]
) -> None:
    before = scatter(
        sentence_experts.extend(
            base, ["query", "passage"], route="prefix", default_route="passage", layers="alternate"
        )
    )
    after = add_route(before, "cluster", seed_from="query", prefix="classification: ")
    assert (after.prompts["cluster"], after.default_prompt_name) == ("classification: ", "passage")
    assert_other_routes_equal(before, after, texts)
    assert add_route(before, "cluster").prompts["cluster"] == "cluster: "
    dropped = drop_route(after, "query")
    assert_other_routes_equal(after, dropped, texts)
    with pytest.raises(RouteError):
        dropped.encode(["query: heart"], prompt="")


def test_a_dense_model_with_tokens(
    base: SentenceTransformer, scatter: Callable[..., ExpertEncoder], texts: list[str]
) -> None:
    before = scatter(sentence_experts.extend(base, NAMES, layers="none"))
    after = add_route(before, "crops", seed_from="base")
    assert_other_routes_equal(before, after, texts)
    assert np.abs(after.encode(texts, prompt_name="crops") - base.encode(texts)).max() <= 1e-6


def test_dropping(mixed: ExpertEncoder, texts: list[str], tmp_path: Path) -> None:
    dropped = drop_route(mixed, "copd")
    assert dropped.experts == ("cvd", "skin cancer")
    assert "copd" not in dropped.prompts
    assert_other_routes_equal(mixed, dropped, texts)
    with pytest.raises(RouteError, match="begin with no known route"):
        dropped.encode(["[COPD]heart"])
    plain = dropped.tokenizer.convert_ids_to_tokens(dropped.tokenizer("[CVD][COPD]heart")["input_ids"])
    assert "[COPD]" not in plain[1:]
    save(dropped, tmp_path / "model")
    assert_other_routes_equal(mixed, sentence_experts.load(tmp_path / "model", device="cpu"), texts)


def test_adding_then_dropping_gives_the_same_model(
    mixed: ExpertEncoder, texts: list[str], tmp_path: Path
) -> None:
    again = drop_route(add_route(mixed, "crops", seed_from="average"), "crops")
    save(mixed, tmp_path / "before")
    save(again, tmp_path / "after")
    for name in ("config.json", "tokenizer.json", "config_sentence_transformers.json"):
        assert (tmp_path / "after" / name).read_bytes() == (tmp_path / "before" / name).read_bytes(), name
    assert_other_routes_equal(mixed, again, texts)


@ONE_FAMILY
@pytest.mark.parametrize("router", ["learned", "switch", "token"])
def test_the_experts_of_a_learned_router_stay(base: SentenceTransformer, router: str) -> None:
    encoder = sentence_experts.extend(base, NAMES, route="none", router=router)
    for change in (lambda: add_route(encoder, "crops"), lambda: drop_route(encoder, "cvd")):
        with pytest.raises(UsageError, match=f"router='{router}'.*extend.*the base"):
            change()


@ONE_FAMILY
def test_dropping_the_default_route(base: SentenceTransformer, caplog: pytest.LogCaptureFixture) -> None:
    encoder = sentence_experts.extend(base, ["copd", "cvd"], default_route="cvd")
    dropped = drop_route(encoder, "cvd")
    assert dropped.default_prompt_name is None
    (told,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert "'cvd' was the default route" in told
    with pytest.raises(RouteError):
        dropped.encode("heart")
    kept = drop_route(encoder, "copd")
    assert (kept.default_prompt_name, kept.encode_query("heart").shape) == ("cvd", (32,))


@ONE_FAMILY
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "cvd"}, "already"),
        ({"name": "skin-cancer"}, "same token"),
        ({"name": "a,b"}, "expert name"),
        ({"name": "crops", "seed_from": "rice"}, "choose average, base, or an expert: copd"),
        ({"name": "crops", "seed_from": "base"}, "give `base`"),
        ({"name": "crops", "base": "minilm"}, "seed_from='base'"),
    ],
)
def test_wrong_additions(mixed: ExpertEncoder, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        add_route(mixed, **arguments)


def test_a_base_that_does_not_fit(bases: dict[str, SentenceTransformer], minilm: str) -> None:
    encoder = sentence_experts.extend(bases["bert"], NAMES)
    with pytest.raises(InputError, match="made from a bert"):
        add_route(encoder, "crops", seed_from="base", base=bases["modernbert"])
    with pytest.raises(InputError, match="does not fit"):
        add_route(encoder, "crops", seed_from="base", base=minilm)


@ONE_FAMILY
def test_wrong_drops(mixed: ExpertEncoder) -> None:
    with pytest.raises(UsageError, match="no route or expert 'crops'; they are copd"):
        drop_route(mixed, "crops")
    with pytest.raises(UsageError, match="the only one"):
        drop_route(drop_route(drop_route(mixed, "copd"), "cvd"), "skin cancer")

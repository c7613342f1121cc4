"""Refusals of `extend`, and their messages."""

from __future__ import annotations

from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import DistilBertConfig, DistilBertModel

import sentence_experts
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.files.saving import save


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "experts: copd, cvd; routes: copd, cvd"),
        ({"router": "token", "route": "none"}, "experts: copd, cvd; routes: none"),
    ],
)
def test_a_model_shows_its_experts_and_routes(
    bases: dict[str, SentenceTransformer], settings: dict[str, Any], expected: str
) -> None:
    model = sentence_experts.extend(bases["bert"], ["copd", "cvd"], **settings)
    assert repr(model).splitlines()[:2] == ["ExpertEncoder(", f"  {expected}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experts": []}, "at least one"),
        ({"experts": ["a", "b", "a"]}, "named twice: 'a'"),
        ({"experts": ["a"], "layers": "some"}, "all, alternate"),
        ({"experts": ["a"], "layers": []}, "block numbers"),
        ({"experts": ["a"], "layers": [4]}, "0 to 3"),
        ({"experts": ["a"], "layers": [-1]}, "block numbers"),
        ({"experts": ["a"], "layers": [0.5]}, "block numbers"),
        ({"experts": ["a"], "route": "magic"}, "'token', 'prefix'"),
        ({"experts": ["a"], "prefixes": {"a": "a: "}}, "route='prefix'"),
        (
            {"experts": ["a"], "route": "prefix", "prefixes": {"b": "b: "}},
            "'b' is not an expert",
        ),
        ({"experts": ["a"], "default_route": "b"}, "not a route"),
        ({"experts": ["a"], "route": "none"}, "router='learned'"),
        ({"experts": ["a"], "router": "magic"}, "'route', 'learned'"),
        ({"experts": ["a"], "router": "learned", "layers": "none"}, "needs blocks with experts"),
        ({"experts": ["a", "b"], "top_k": 2}, "`top_k` is for `router='token'`"),
        ({"experts": ["a"], "expert_norms": True, "layers": "none"}, "`expert_norms` needs blocks"),
        (
            {"experts": ["a"], "router": "learned", "route": "none", "default_route": "a"},
            "makes no routes",
        ),
        ({"experts": ["a,b"]}, "expert name"),
        ({"experts": ["a", "all"]}, "route name 'all': all, auto and none mean other things"),
        ({"routes": ["a", "none"], "kind": "head"}, "route name 'none'"),
        ({"expert": ["a"]}, "`expert`: no such setting; did you mean experts"),
    ],
)
def test_wrong_arguments(
    bases: dict[str, SentenceTransformer], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        sentence_experts.extend(bases["bert"], **arguments)


def test_a_reserved_name_is_for_the_one_route_of_pairs_without_domains(
    bases: dict[str, SentenceTransformer],
) -> None:
    encoder = sentence_experts.extend(bases["bert"], ["all"])
    assert encoder.experts == ("all",)
    with pytest.raises(UsageError, match="route name 'auto'"):
        sentence_experts.add_route(encoder, "auto")
    assert [route.name for route in sentence_experts.add_route(encoder, "b").routes] == ["all", "b"]


def test_a_base_that_has_experts(base: SentenceTransformer) -> None:
    encoder = sentence_experts.extend(base, ["a", "b"])
    with pytest.raises(InputError, match="has routes already"):
        sentence_experts.extend(encoder, ["c"])


def test_another_family(plain_folders: dict[str, Path], tmp_path: Path) -> None:
    config = DistilBertConfig(vocab_size=220, dim=32, n_layers=1, n_heads=2, hidden_dim=32)
    DistilBertModel(config).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((plain_folders["nomic_bert"] / name).read_bytes())
    with pytest.raises(InputError, match=r"'distilbert'.*BERT.*ModernBERT.*NomicBERT"):
        sentence_experts.extend(tmp_path, ["a"])


def test_no_layers_is_a_dense_model_with_the_same_routes(
    base: SentenceTransformer, texts: list[str], tmp_path: Path
) -> None:
    encoder = sentence_experts.extend(base, ["copd", "cvd"], layers="none")
    assert not any(".experts." in name for name, _ in encoder.named_parameters())
    total, active = encoder.parameter_counts()
    assert total == active
    save(encoder, tmp_path / "model")
    again = sentence_experts.load(tmp_path / "model", device="cpu")
    assert np.abs(again.encode(texts, prompt_name="cvd") - base.encode(texts)).max() <= 1e-6
    with pytest.raises(RouteError):
        again.encode("heart")


def test_default_instruction_is_the_name(base: SentenceTransformer) -> None:
    encoder = sentence_experts.extend(base, ["query", "passage"], route="prefix")
    assert [encoder.prompts[name] for name in encoder.experts] == ["query: ", "passage: "]
    assert np.array_equal(encoder.encode_query("heart"), encoder.encode("query: heart"))


def test_prompts_of_the_base_that_are_dropped_are_told(base: SentenceTransformer, caplog) -> None:
    prompted = copy(base)
    prompted.prompts = {"query": "query: ", "passage": "passage: "}
    sentence_experts.extend(prompted, ["query", "passage"], route="prefix")
    assert not caplog.records
    sentence_experts.extend(prompted, ["copd"])
    assert "the base's prompts (query, passage) are dropped" in caplog.text


def test_a_default_prompt_of_the_base_stays(base_folders: dict[str, Path], family: str) -> None:
    """A base that reads "query: " in front of each text gets the same text from every expert."""
    base = SentenceTransformer(
        str(base_folders[family]), device="cpu", prompts={"q": "query: "}, default_prompt_name="q"
    )
    encoder = sentence_experts.extend(base, ["copd", "cvd"])
    expected = base.encode(["heart"])
    assert np.abs(encoder.encode(["heart"], prompt_name="cvd") - expected).max() <= 1e-6
    assert np.abs(encoder.encode(["heart"], expert_ids=1) - expected).max() <= 1e-6


def test_pooling_without_prompts(base_folders: dict[str, Path], family: str, texts: list[str]) -> None:
    base = SentenceTransformer(str(base_folders[family]), device="cpu")
    expected = base.encode(texts)
    base.set_pooling_include_prompt(False)
    encoder = sentence_experts.extend(base, ["copd", "cvd"])
    assert np.abs(encoder.encode(texts, prompt_name="copd") - expected).max() <= 1e-6
    with pytest.raises(UsageError, match="include_prompt"):
        sentence_experts.extend(base, ["copd", "cvd"], route="prefix")


@pytest.mark.parametrize("mode", ["cls", "max", "lasttoken", "weightedmean"])
def test_other_poolings_stay(base_folders: dict[str, Path], family: str, mode: str, texts: list[str]) -> None:
    loaded = SentenceTransformer(str(base_folders[family]), device="cpu")
    base = SentenceTransformer(modules=[loaded[0], Pooling(32, mode)], device="cpu")
    encoder = sentence_experts.extend(base, ["copd", "cvd"])
    assert [type(module) for module in encoder] == [type(module) for module in base]
    assert np.abs(encoder.encode(texts, prompt_name="cvd") - base.encode(texts)).max() <= 1e-5


def test_max_seq_length_is_kept(base_folders: dict[str, Path], family: str) -> None:
    base = SentenceTransformer(str(base_folders[family]), device="cpu")
    base.max_seq_length = 7
    for route in ("token", "prefix"):
        encoder = sentence_experts.extend(base, ["copd"], route=route)
        assert encoder.max_seq_length == 7
        assert encoder.tokenize([encoder.prompts["copd"] + "heart " * 30])["input_ids"].shape[1] == 7


def test_dtype_is_kept(base_folders: dict[str, Path], family: str) -> None:
    options = {"dtype": torch.bfloat16}
    base = SentenceTransformer(str(base_folders[family]), device="cpu", model_kwargs=options)
    encoder = sentence_experts.extend(base, ["copd", "cvd"])
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.bfloat16}
    expected = base.encode(["heart"], convert_to_tensor=True).float()
    assert torch.equal(encoder.encode(["heart"], prompt_name="cvd", convert_to_tensor=True).float(), expected)


def test_a_model_with_hooks_is_refused(bases: dict[str, SentenceTransformer]) -> None:
    model = deepcopy(bases["bert"])
    before = model.encode(["lungs"])
    model[0].auto_model.embeddings.register_forward_hook(lambda layer, given, found: found + 1)
    assert not np.allclose(model.encode(["lungs"]), before)
    with pytest.raises(UsageError, match="embeddings' has hooks"):
        sentence_experts.extend(model, ["a"])
    model = deepcopy(bases["bert"])
    model[1].register_forward_hook(lambda layer, given, found: found)
    with pytest.raises(UsageError, match="the layer '1' has hooks"):
        sentence_experts.extend(model, ["a"])
    model = deepcopy(bases["bert"])
    torch.nn.utils.parametrizations.weight_norm(model[0].auto_model.embeddings.word_embeddings)
    with pytest.raises(UsageError, match="word_embeddings' is compiled or parametrized"):
        sentence_experts.extend(model, ["a"])


def test_a_model_that_a_stock_class_opened_is_to_be_loaded(experts_model: Path) -> None:
    stock = SentenceTransformer(str(experts_model), device="cpu")
    for call in (
        lambda: sentence_experts.add_route(stock, "new"),
        lambda: sentence_experts.export(stock, average=True),
        lambda: sentence_experts.load(stock, routes=["a"]),
    ):
        with pytest.raises(InputError, match="opened by a stock SentenceTransformer; open it with `load`"):
            call()


def test_beside_a_default_route_queries_keep_their_own(base: SentenceTransformer) -> None:
    prefixes = {"search_query": "search query: ", "search_document": "search document: "}
    made = sentence_experts.extend(
        base, [*prefixes], route="prefix", prefixes=prefixes, default_route="search_document"
    )
    assert made.prompts["query"] == made.prompts["search_query"]
    assert made.prompts["document"] == made.prompts["search_document"]
    left = sentence_experts.drop_route(made, "search_query")
    assert left.prompts["query"] == left.prompts["search_document"]
    made.prompts["query"] = "mine: "
    assert sentence_experts.drop_route(made, "search_query").prompts["query"] == "mine: "


def test_beside_a_default_route_of_tasks_queries_keep_their_own(base: SentenceTransformer) -> None:
    rows = {
        "question": [f"who grows rice {n}" for n in range(40)],
        "passage": [f"rice {n}" for n in range(40)],
    }
    source = {"table": rows, "anchor": "question", "positive": "passage"}
    task = {"kind": "retrieval", "instructions": {"ask": "ask: ", "answer": "answer: "}}
    tasks = sentence_experts.compile_tasks({"ask": {**task, "datasets": {"rice": source}}})
    made = sentence_experts.extend(base, tasks=tasks, default_route="answer")
    assert (made.prompts["query"], made.prompts["document"]) == ("ask: ", "answer: ")

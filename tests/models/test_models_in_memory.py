"""`load` on models in memory: they stay as they are, whatever the settings."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Router
from transformers.models.bert.modeling_bert import BertEmbeddings

from helpers.searched_corpus import write_searched_corpus
from sentence_experts.encoding.encode import encode
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.packed_forward import is_packed, use_packing
from sentence_experts.models.dense import average_experts, export_route
from sentence_experts.models.export.export import export
from sentence_experts.models.loading import load
from sentence_experts.models.pooling import pooling_of
from sentence_experts.models.sources import name_of
from sentence_experts.models.surgery.add_drop_routes import add_route, drop_route, with_heads
from sentence_experts.models.surgery.extend import extend
from sentence_experts.retrieval.search import search
from sentence_experts.training.run import train

TEXTS = ["Rice needs water to grow.", "A heart beats."]


def state(model: SentenceTransformer) -> tuple[Any, ...]:
    weights = [(name, value.data_ptr(), value.dtype) for name, value in model.state_dict().items()]
    tokenizer: Any = model.tokenizer
    modules = list(model)
    return (
        [*map(id, modules)], pooling_of(model), model.max_seq_length, tokenizer.model_max_length,
        model.dtype, model.device, is_packed(model), weights,
    )  # fmt: skip


@pytest.fixture
def model(plain_folders: dict[str, Path]) -> SentenceTransformer:
    return load(plain_folders["bert"], device="cpu")


@pytest.mark.parametrize(
    "settings",
    [
        {"pooling": "cls"},
        {"max_length": 4},
        {"pooling": "cls", "max_length": 4},
        {"dtype": "bfloat16"},
        {"packed": False},
    ],
)
def test_settings_leave_the_model_as_it_was(model: SentenceTransformer, settings: dict[str, Any]) -> None:
    before, vectors = state(model), model.encode(TEXTS)
    other = load(model, **settings)
    assert other is not model
    assert type(other) is type(model)
    assert state(model) == before
    np.testing.assert_array_equal(model.encode(TEXTS), vectors)
    if "pooling" in settings:
        assert pooling_of(other) == settings["pooling"]
    if "max_length" in settings:
        assert other.max_seq_length == settings["max_length"]
    if "dtype" in settings:
        assert other.dtype == torch.bfloat16
    if "packed" in settings:
        assert not is_packed(other)


def test_two_poolings_of_one_model_give_different_vectors(
    model: SentenceTransformer, plain_folders: dict[str, Path]
) -> None:
    own, first = (load(model, pooling=pooling).encode(TEXTS) for pooling in (None, "cls"))
    assert np.abs(own - first).max() > 1e-3
    expected = load(plain_folders["bert"], device="cpu", pooling="cls").encode(TEXTS)
    np.testing.assert_allclose(first, expected, atol=1e-6)


def test_a_view_shares_the_weights(model: SentenceTransformer) -> None:
    view = load(model, pooling="cls", max_length=4)
    assert next(view.parameters()) is next(model.parameters())


def test_settings_that_change_nothing_give_the_model_itself(model: SentenceTransformer) -> None:
    before = state(model)
    assert load(model, device="cpu", dtype="float32", pooling="mean", packed=True) is model
    assert state(model) == before
    assert load(model) is model


@pytest.mark.parametrize(
    "settings",
    [
        {"revision": "main"},
        {"trust_remote_code": True},
    ],
)
def test_settings_without_effect_on_a_model_in_memory_are_refused(
    model: SentenceTransformer, settings: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=f"`{next(iter(settings))}.*in memory"):
        load(model, **settings)


@pytest.mark.parametrize("source", [3, None, ["minilm"], torch.nn.Linear(1, 1)])
def test_what_is_no_model_is_refused(source: Any) -> None:
    with pytest.raises(UsageError, match="a model is a path, a hub id or a SentenceTransformer"):
        load(source)


@pytest.mark.parametrize(
    "settings",
    [
        {"route": "a"},
        pytest.param({"format": "onnx", "int8": TEXTS * 40}, marks=pytest.mark.slow),
    ],
)
def test_export_leaves_the_model_as_it_was(
    base_folders: dict[str, Path], tmp_path: Path, settings: dict[str, Any]
) -> None:
    encoder = extend(base_folders["bert"], experts=["a", "b"])
    encoder.to(torch.bfloat16)
    before = state(encoder)
    export(encoder, tmp_path / "out", **settings)
    assert state(encoder) == before


def test_models_made_of_others_bear_the_name_of_the_first(plain_folders: dict[str, Path]) -> None:
    folder = plain_folders["bert"]
    experts = extend(str(folder), ["copd", "cvd"])
    more = add_route(experts, "skin", seed_from="cvd")
    made = [experts, more, drop_route(more, "copd"), average_experts(experts), export_route(experts, "cvd")]
    assert {name_of(model) for model in made} == {folder.name}
    assert {model.tokenizer.name_or_path for model in made} == {folder.name}


def test_without_a_folder_the_exported_model_stays_in_memory(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    experts = extend(model, ["copd", "cvd"])
    for settings in ({"route": "cvd"}, {"average": True}):
        dense = export(experts, **settings)
        assert type(dense) is SentenceTransformer
        written = export(experts, tmp_path / next(iter(settings)), **settings)
        np.testing.assert_array_equal(dense.encode(TEXTS), written.model.encode(TEXTS))
    with pytest.raises(UsageError, match="`format=onnx` needs `out`"):
        export(experts, route="cvd", format="onnx")


@pytest.mark.parametrize("length", [1, 2])
def test_a_maximum_length_leaves_room_for_text(model: SentenceTransformer, length: int) -> None:
    with pytest.raises(UsageError, match="no room for text beside the 2 tokens of the model"):
        load(model, max_length=length)
    vectors = load(model, max_length=3).encode(["rice", "neurons"])
    assert not np.allclose(vectors[0], vectors[1])


def test_settings_without_effect_are_told(
    model: SentenceTransformer, caplog: pytest.LogCaptureFixture
) -> None:
    longest = model.max_seq_length
    load(model, max_length=longest)
    assert not caplog.records
    load(model, max_length=1000)
    assert f"`max_length=1000`: the model reads {longest} tokens" in caplog.text
    with pytest.raises(UsageError, match="`routes` and `max_resident_experts`"):
        load(model, routes=["cvd"], max_resident_experts=1)


def test_a_prompt_leaves_room_for_text(model: SentenceTransformer) -> None:
    model = load(model, max_length=6)
    model.prompts["query"] = "a query about rice and wheat: "
    with pytest.raises(UsageError, match="no room for text beside the prompt's"):
        encode(model, ["rice", "neurons"], route="query")


def test_other_modules_for_queries_are_refused(plain_folders: dict[str, Path], tmp_path: Path) -> None:
    """Routes are prompts: each text would go through the modules of documents."""
    parts = [[*SentenceTransformer(str(plain_folders["bert"]), device="cpu")] for _ in range(2)]
    rows = [{"anchor": f"rice {number}", "positive": f"wheat {number}"} for number in range(8)]
    corpus = write_searched_corpus(tmp_path / "corpus")
    router = Router.for_query_document(*parts, default_route="document")
    model = SentenceTransformer(modules=[router], device="cpu")
    model.save(str(tmp_path / "model"))
    calls: tuple[Callable[[Any], object], ...] = (
        load,
        lambda source: encode(source, ["a text"]),
        lambda source: search(source, corpus, "a text"),
        lambda source: train(source, rows, max_steps=1, batch_size=4),
    )
    for source in (model, tmp_path / "model"):
        for call in calls:
            with pytest.raises(InputError, match="models with a Router, which may have other modules"):
                call(source)


@pytest.mark.parametrize("setting", [{"query_length": 8}, {"document_length": 8}])
def test_other_lengths_for_queries_are_refused(
    plain_folders: dict[str, Path], setting: dict[str, int]
) -> None:
    model = SentenceTransformer(str(plain_folders["bert"]), device="cpu")
    for name, value in setting.items():
        setattr(model[0], name, value)
    for call in (load, lambda source: encode(source, ["a text"])):
        with pytest.raises(
            InputError, match=f"reads queries otherwise than documents .`{next(iter(setting))}`"
        ):
            call(model)


def test_prompts_of_a_view_are_its_own(model: SentenceTransformer) -> None:
    view = load(model, max_length=8)
    view.prompts["new"] = "new: "
    assert "new" not in model.prompts


def test_a_model_without_special_tokens_or_with_own_modules_gets_no_routes(
    plain_folders: dict[str, Path],
) -> None:
    class Own(torch.nn.Module):
        def forward(self, features: Any) -> Any:
            return features

    model = SentenceTransformer(str(plain_folders["bert"]), device="cpu")
    model[0].processing_kwargs = {"text": {"add_special_tokens": False}}
    with pytest.raises(UsageError, match="leaves out special tokens"):
        extend(model, ["a", "b"])
    model[0].processing_kwargs = {}
    layer = model[0].auto_model.encoder.layer[0]
    forward = layer.forward
    layer.forward = lambda *args, **kwargs: forward(*args, **kwargs)
    with pytest.raises(UsageError, match=r"`.*` of the layer .* was replaced"):
        extend(model, ["a", "b"])
    del layer.forward
    layer.output.LayerNorm.eps *= 1000
    with pytest.raises(UsageError, match=r"LayerNorm.* was set otherwise than the model's config says"):
        extend(model, ["a", "b"])
    layer.output.LayerNorm.eps /= 1000
    model.append(Own())
    with pytest.raises(UsageError, match="has a module of another class"):
        extend(model, ["a", "b"])


def test_a_padded_batch_is_not_packed_for_an_attention_of_somebody_else(
    plain_folders: dict[str, Path],
) -> None:
    """Its mask may know nothing of several texts in one row."""

    class Own(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.inner(*args, **kwargs)

    model = SentenceTransformer(str(plain_folders["bert"]), device="cpu")
    layer = model[0].auto_model.encoder.layer[0]
    layer.attention = Own(layer.attention)
    assert is_packed(use_packing(model)) is None


def test_heads_map_vectors_that_the_transformer_pools(plain_folders: dict[str, Path]) -> None:
    """A module before the pooling would come behind the head, which is learned on what it makes."""
    base = SentenceTransformer(str(plain_folders["bert"]), device="cpu")
    width = base.get_embedding_dimension()
    tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    base.insert(1, Dense(width, width, **tokens))
    heads = {"a": (np.eye(width), np.zeros(width))}
    for make in (lambda: extend(base, routes=["a"], kind="head"), lambda: with_heads(base, heads)):
        with pytest.raises(InputError, match="this model has Dense before its pooling"):
            make()


T = TypeVar("T")


class Doubled(SentenceTransformer):
    def encode(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().encode(*args, **kwargs)


class Prompted(SentenceTransformer):
    encode = functools.partialmethod(SentenceTransformer.encode, prompt="query: ")


class Remembering(SentenceTransformer):
    @functools.lru_cache  # noqa: B019
    def encode(self, text: str) -> Any:
        return 2 * super().encode(text)


class Embeddings(BertEmbeddings):
    """A layer of the user's own with the weights of another."""


def cut(model: Any) -> None:
    model[0].auto_model.encoder.layer = model[0].auto_model.encoder.layer[:1]


def append(model: Any) -> None:
    model[0].auto_model.encoder.layer.append(copy.deepcopy(model[0].auto_model.encoder.layer[0]))


@pytest.mark.parametrize(
    "change",
    [
        cut, append,
        lambda model: setattr(model, "__class__", Doubled),
        lambda model: setattr(model, "__class__", Prompted),
        lambda model: setattr(model, "__class__", Remembering),
        lambda model: setattr(model[0].auto_model.embeddings, "__class__", Embeddings),
        lambda model: setattr(
            model[0].auto_model.encoder.layer[0].intermediate, "intermediate_act_fn", torch.nn.ReLU()
        ),
        lambda model: setattr(model[0].auto_model.config, "hidden_act", "relu"),
    ],
)  # fmt: skip
def test_routes_are_not_built_on_layers_that_a_copy_would_not_have(
    plain_folders: dict[str, Path], change: Callable[[Any], None]
) -> None:
    model = load(plain_folders["bert"], device="cpu")
    change(model)
    with pytest.raises(UsageError, match="new model would"):
        extend(model, routes=["a"], kind="head")


def test_a_class_without_functions_is_no_other(plain_folders: dict[str, Path]) -> None:
    model = load(plain_folders["bert"], device="cpu")
    inert = {"count": lambda self: 3, "kind": "named", "__repr__": lambda self: "Named"}
    bases = (SentenceTransformer, Generic[T])
    model.__class__ = types.new_class("Named", bases, {}, lambda names: names.update(inert))
    assert extend(model, routes=["a"], kind="head").routes


def test_a_replaced_encode_is_refused_where_it_would_not_be_called(plain_folders: dict[str, Path]) -> None:
    model: Any = load(plain_folders["bert"], device="cpu")
    known = model.encode
    model.encode = lambda *args, **kwargs: 2 * known(*args, **kwargs)
    with pytest.raises(UsageError, match="`encode` of the model was replaced"):
        encode(model, ["rice"])

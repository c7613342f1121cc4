"""The hash of a model in memory: of its files as long as it is as they were, else of its weights."""

from __future__ import annotations

import copy
import functools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import peft
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from transformers import PreTrainedConfig

from sentence_experts.compat.sentence_transformers import share_all_but_tokenizer
from sentence_experts.compat.values import describe_values
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import UsageError
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.export.export import export
from sentence_experts.models.files.fingerprint import (
    fingerprint_of,
    fingerprint_with_settings,
    folder_fingerprint,
    weights_fingerprint,
)
from sentence_experts.models.files.saving import save
from sentence_experts.models.loading import load
from sentence_experts.models.pooling import set_pooling
from sentence_experts.models.sources import ModelOrigin
from sentence_experts.models.surgery.add_drop_routes import drop_route
from sentence_experts.models.surgery.extend import extend

Change = Callable[[Any], object]


def add_to_weights(model: Any) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1)


def add_to_data(model: Any) -> None:
    """As peft does where it merges a LoRA; torch counts no change."""
    for weight in model.parameters():
        weight.data += 0.1


def take_a_fused_step(model: Any) -> None:
    """As the trainers of transformers and sentence-transformers do by default: torch counts no change."""
    model.requires_grad_(False)
    model[0].auto_model.embeddings.word_embeddings.requires_grad_(True)
    vectors = model(model.preprocess(["rice", "sleep"]))["sentence_embedding"]
    vectors.square().sum().backward()
    torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True).step()


def double(layer: Any, given: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


def drop_a_layer(model: Any) -> None:
    model[0].auto_model.encoder.layer = model[0].auto_model.encoder.layer[:1]


def replace_a_weight(model: Any) -> None:
    embeddings = model[0].auto_model.embeddings.word_embeddings
    embeddings.weight = torch.nn.Parameter(embeddings.weight.detach() * 2)


def keep_case(model: Any) -> None:
    model.tokenizer.backend_tokenizer.normalizer = None


class Power(torch.nn.Module):
    """A module of one's own, of which no setting is a weight."""

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent

    def forward(self, features: Any) -> Any:
        vectors = features["sentence_embedding"]
        return {**features, "sentence_embedding": vectors.sign() * vectors.abs() ** self.exponent}


def scale_by(factor: float) -> Callable[[Any], Any]:
    return lambda features: {**features, "sentence_embedding": features["sentence_embedding"] * factor}


CHANGES: list[Change] = [
    add_to_weights,
    add_to_data,
    take_a_fused_step,
    drop_a_layer,
    replace_a_weight,
    keep_case,
    lambda model: model.append(Normalize()),
    lambda model: setattr(model[0].auto_model.embeddings.LayerNorm, "eps", 0.1),
    lambda model: setattr(
        model[0].auto_model.encoder.layer[0].intermediate, "intermediate_act_fn", torch.nn.ReLU()
    ),
    lambda model: model[0].auto_model.embeddings.register_forward_hook(double),
    lambda model: model.prompts.update(query="query: "),
    lambda model: model.set_pooling_include_prompt(False),
    lambda model: setattr(model.tokenizer, "truncation_side", "left"),
    lambda model: setattr(model[0], "processing_kwargs", {"text": {"max_length": 5}}),
    lambda model: setattr(model[0].auto_model.config, "is_decoder", True),
    lambda model: setattr(model[0].auto_model.encoder.layer[0].attention.self, "attention_head_size", 1),
    lambda model: model[0].auto_model.embeddings.position_ids.add_(1),
]


@pytest.fixture(scope="module")
def saved(plain_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model that no test changes."""
    folder = tmp_path_factory.mktemp("unchanged") / "model"
    save(load(plain_folders["bert"], device="cpu"), folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def model(folder: Path) -> SentenceTransformer:
    return load(folder, device="cpu")


def test_a_model_that_is_as_its_files_has_their_hash(model: SentenceTransformer, folder: Path) -> None:
    copies = (copy.deepcopy(model), load(model, pooling="cls"), share_all_but_tokenizer(model))
    hashes = [fingerprint_of(each) for each in (model, *copies)]
    assert set(hashes) == {folder_fingerprint(folder)} == {fingerprint_with_settings(model)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_has_another_hash(model: SentenceTransformer, change: Change) -> None:
    before = fingerprint_of(model), weights_fingerprint(model)
    change(model)
    assert fingerprint_of(model) not in before
    assert weights_fingerprint(model) not in before


class Kept(Power):
    """Its settings are in an object and in a dict, not in parameters of `__init__`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args)
        self.config, self.words, self.mode = SimpleNamespace(**kwargs), {"virus": 1.0}, Mode.MEAN


class Mode(Enum):
    MEAN, MAX = 1, 2


class OwnConfig(PreTrainedConfig):
    model_type = "own"


class Scaled(torch.nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.config = OwnConfig()
        self.config.scale = scale

    def forward(self, features: Any) -> Any:
        return features


def test_the_config_of_an_own_module_counts(model: Any) -> None:
    hashes = set()
    for scale in (1.0, 5.0):
        model.append(Scaled(scale))
        hashes.add(fingerprint_of(model))
        model.encode(["rice"])
        assert fingerprint_of(model) in hashes
        del model[-1]
    assert len(hashes) == 2


def test_many_objects_that_hold_each_other_are_described_once() -> None:
    """Each is described where it is met first: all ways through a graph of 40 nodes would never end."""
    nodes = [Node(f"node {n}") for n in range(40)]
    for node in nodes:
        node.near = {each for each in nodes if each is not node}
    described = str(describe_values(nodes))
    assert described == str(describe_values(copy.deepcopy(nodes)))
    nodes[7].weight = 2.0
    assert described != str(describe_values(nodes))


@pytest.mark.slow
def test_sets_are_described_the_same_in_every_process() -> None:
    program = """if True:
        from datetime import date
        from pathlib import Path
        from sentence_experts.compat.values import describe_values
        paths = {Path(each) for each in "abcdef"}
        days = {date(2000, 1, day) for day in range(1, 9)}
        within = {frozenset({each, 1}) for each in "abcdef"} | {f"error at 0x{n}" for n in range(5)}
        print(describe_values([paths, days, within, {lambda: 1, lambda: 2, lambda: 3}]))"""
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(told) == 1


class Node:
    def __init__(self, name: str) -> None:
        self.name, self.weight = name, 1.0
        self.near: set[Node] = set()


def test_all_that_own_modules_hold_counts(model: Any) -> None:
    model.append(Kept(1.0, factor=2.0))
    hashes = [fingerprint_of(model)]
    for change in (
        lambda own: setattr(own.config, "factor", 3.0),
        lambda own: own.words.update(virus=3.0),
        lambda own: setattr(own, "mode", Mode.MAX),
        lambda own: setattr(own, "_cache", {1: torch.ones(2)}),
    ):
        model.encode(["rice"])
        assert fingerprint_of(model) == hashes[-1] == fingerprint_of(copy.deepcopy(model))
        change(model[-1])
        hashes.append(fingerprint_of(model))
    assert len({*hashes}) == 5


def test_functions_in_the_place_of_others_count_however_they_are_put_there(model: Any) -> None:
    layer = model[0].auto_model.embeddings
    known, before = layer.forward, fingerprint_of(model)

    @functools.wraps(known)
    def doubled(*args: Any, **kwargs: Any) -> Any:
        return 2 * known(*args, **kwargs)

    class Halved:
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return 0.5 * known(*args, **kwargs)

    hashes = {before}
    for function in (doubled, Halved(), partial(doubled), lambda *args, **kwargs: known(*args, **kwargs)):
        layer.forward = function
        hashes.add(fingerprint_of(model))
        with pytest.raises(UsageError, match=r"`forward` of the layer .* was replaced"):
            extend(model, ["a", "b"])
    assert len(hashes) == 5


SIGN = 1.0


def signed(vectors: torch.Tensor) -> torch.Tensor:
    return SIGN * vectors


def test_what_own_classes_and_functions_use_counts(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Built(Power):
        factor = 1.0

    model.append(Built(1.0))
    known = model[0].auto_model.embeddings.forward
    model[0].auto_model.embeddings.forward = torch.no_grad()(
        lambda *args, **kwargs: signed(known(*args, **kwargs))
    )
    linear = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Tanh())
    model[-1].register_forward_hook(lambda *_: linear and None)
    hashes = [fingerprint_of(model)]
    for change in (
        lambda: monkeypatch.setattr(Power, "forward", lambda self, features: features),
        lambda: monkeypatch.setattr(Built, "factor", 2.0),
        lambda: monkeypatch.setattr(sys.modules[__name__], "SIGN", -1.0),
        lambda: linear.__setitem__(1, torch.nn.ReLU()),
    ):
        change()
        hashes.append(fingerprint_of(model))
    assert len({*hashes}) == 5


@torch.no_grad()
def decorated(vectors: torch.Tensor) -> torch.Tensor:
    return vectors * WEIGHT


WEIGHT = np.float32(2)
data = [1]


def test_globals_behind_decorators_count_and_attributes_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def hook(layer: Any, given: Any, result: Any, pattern: Any = re.compile(rb"a")) -> Any:
        return decorated(result.data)

    before = json.dumps(describe_values(hook))
    monkeypatch.setattr(sys.modules[__name__], "data", [2])
    assert json.dumps(describe_values(hook)) == before
    monkeypatch.setattr(sys.modules[__name__], "WEIGHT", np.float32(3))
    assert json.dumps(describe_values(hook)) != before


def test_which_of_several_values_is_meant_counts() -> None:
    tables = {"a": {"x": 1}, "b": {"x": 2}}
    one, other = (SimpleNamespace(tables=tables, used=tables[name]) for name in "ab")
    assert describe_values(one) != describe_values(other)


def test_settings_of_layers_that_build_on_others_count(model: Any) -> None:
    class Pooled(type(model[1])):  # type: ignore[misc]
        config: Any
        expert = "biology"

    model[1].__class__ = Pooled
    model[1].config = {"threshold": 1}
    before = fingerprint_of(model)
    model[1].config["threshold"] = 2
    assert fingerprint_of(model) != before


def test_functions_that_call_each_other_are_described_in_time() -> None:
    space: dict[str, Any] = {}
    calls = "; ".join(f"f{other}()" for other in range(30))
    for number in range(30):
        exec(f"def f{number}(): {calls}", space)
    assert len(json.dumps(describe_values(space["f0"]))) < 10**6


def test_an_activation_of_one_expert_counts_also_while_it_waits(
    bases: dict[str, SentenceTransformer],
) -> None:
    model: Any = extend(bases["bert"], ["a", "b"])
    before = fingerprint_of(model)
    model.use_routes(["b"], idle="cpu")
    assert fingerprint_of(model) == before
    model.use_routes(["a", "b"])
    model[0].auto_model.encoder.layer[-1].experts[0].intermediate.intermediate_act_fn = torch.nn.ReLU()
    assert fingerprint_of(model) != before
    with pytest.raises(UsageError, match="by the model's config"):
        drop_route(model, "b")


def test_classes_of_installed_packages_are_the_same_in_use(model: Any) -> None:
    model.append(type("Linear8bit", (Power,), {"__module__": np.__name__ + ".linalg"})(1.0))
    model.encode(["rice"])
    before = fingerprint_of(model)
    model[-1]._state = torch.ones(1)
    assert fingerprint_of(model) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tanh, torch.relu), (partial(len, 1), partial(len, 2)), (torch.float16, torch.float32),
        (SimpleNamespace(values=[1, 2]), SimpleNamespace(values=[9])), (Power(1.0), Power(2.0)),
        (SimpleNamespace(_scale=2.0), SimpleNamespace(_scale=9.0)), (torch.tensor(1.0), torch.tensor(2.0)),
        (re.compile("a" * 300), re.compile("a" * 301)), (torch.arange(8.0)[::2], torch.arange(8.0)[1::2]),
        (np.array(1, object), np.array(2, object)), (range(2), range(3)), (Path("a"), Path("b")),
        ({1: 2}, {2: 1}), ([torch.nn.Linear(1, 1)], [torch.nn.Linear(1, 1)]),
    ],
)  # fmt: skip
def test_values_are_told_apart(one: Any, other: Any) -> None:
    assert describe_values(one) == describe_values(copy.copy(one))
    assert json.dumps(describe_values(one)) != json.dumps(describe_values(other))


def test_what_holds_itself_is_described() -> None:
    value: dict[str, Any] = {"a": 1}
    value["self"] = [value]
    assert json.dumps(describe_values(value))


@pytest.mark.slow
def test_descriptions_are_the_same_in_every_process() -> None:
    code = """
from sentence_experts.compat.values import describe_values
print(describe_values([{"b", "a", "c"}, lambda text: text in {"x", "y", "z"}, {len: 1, print: object()}]))"""
    run = partial(subprocess.run, [sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = {run(env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(found) == 1


def test_hooks_of_experts_and_experts_that_are_not_in_memory_count(
    bases: dict[str, SentenceTransformer], tmp_path: Path
) -> None:
    hashes = set()
    for factor in (1.0, 2.0):
        made: Any = extend(bases["bert"], ["a", "b"])
        with torch.no_grad():
            next(each for name, each in made.named_parameters() if ".experts.1." in name).mul_(factor)
        save(made, tmp_path / str(factor))
        model: Any = load(tmp_path / str(factor), device="cpu", max_resident_experts=1)
        model.prompts = {**model.prompts, "a": model.prompts["a"] + "about: "}
        hashes.add(fingerprint_of(model))
        model.encode(["rice"], prompt_name="b")
        hashes.add(fingerprint_of(model))
    assert len(hashes) == 2
    hooked: Any = extend(bases["bert"], ["a", "b"])
    place = next(each for name, each in hooked.named_modules() if name.endswith(".experts.1"))
    before = fingerprint_of(hooked)
    next(place.children()).register_forward_hook(double)
    assert fingerprint_of(hooked) != before


def test_settings_and_functions_of_own_modules_change_the_hash(model: Any) -> None:
    model.append(Power(1.0))

    def hash_both() -> tuple[str, str]:
        assert fingerprint_of(model) == fingerprint_of(copy.deepcopy(model)), "a copy is the same"
        return fingerprint_of(model), weights_fingerprint(model)

    hashes = [hash_both()]
    model.encode(["rice"])
    assert hash_both() == hashes[0], "use changes nothing"
    for exponent in (2.0, np.float64(0.5), torch.tensor(0.25)):
        model[-1].exponent = exponent
        hashes.append(hash_both())
    for factor in (2.0, 3.0):
        model[-1].forward = scale_by(factor)
        hashes.append(hash_both())
    for cut in (3, 5):
        model.encode = lambda texts, cut=cut, **more: type(model).encode(
            model, [text[:cut] for text in texts], **more
        )
        hashes.append((fingerprint_of(model), weights_fingerprint(model)))
    assert all(len(set(each)) == len(hashes) for each in zip(*hashes, strict=True))


def test_hooks_of_transformers_do_not_count(model: Any) -> None:
    before = fingerprint_of(model), weights_fingerprint(model)
    model[0].auto_model.enable_input_require_grads()
    model.encode(["rice"])
    assert (fingerprint_of(model), weights_fingerprint(model)) == before


def add_lora(model: Any, name: str) -> None:
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query"], init_lora_weights=False), name)


def test_the_adapters_that_a_model_applies_change_its_hash(model: Any, folder: Path) -> None:
    add_lora(model, "first")
    model.save(str(folder.parent / "lora"))
    opened: Any = load(folder.parent / "lora", device="cpu")
    add_lora(model, "second")
    hashes = [fingerprint_of(opened), fingerprint_of(model)]
    for change in (
        lambda: model.set_adapter("first"),
        lambda: model.disable_adapters(),
        lambda: opened.disable_adapters(),
    ):
        change()
        hashes += [fingerprint_of(opened), fingerprint_of(model)]
    assert len({*hashes}) == 5
    opened.enable_adapters()
    assert fingerprint_of(opened) == hashes[0]


def test_a_quantized_model_has_a_hash_of_its_weights(model: Any) -> None:
    def quantize(model: Any) -> str:
        kinds = {torch.nn.Linear}
        return fingerprint_of(torch.ao.quantization.quantize_dynamic(model, kinds, dtype=torch.qint8))

    changed = copy.deepcopy(model)
    changed[0].auto_model.encoder.layer[0].output.dense.weight.data *= 2
    assert quantize(model) == quantize(model) != quantize(changed)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        pytest.param(lambda m: pickle.loads(pickle.dumps(m)), marks=pytest.mark.slow),
        lambda m: load(m, dtype="bfloat16"),
    ],
    ids=["deepcopy", "pickle", "load"],
)
def test_a_copy_of_a_changed_model_does_not_pass_for_the_files(
    model: SentenceTransformer, folder: Path, change: Change, copied: Callable[[Any], Any]
) -> None:
    change(model)
    assert fingerprint_of(copied(model)) != folder_fingerprint(folder)
    assert fingerprint_of(copied(copied(model))) != folder_fingerprint(folder)


def test_trained_experts_do_not_pass_for_the_files_in_a_copy(
    bases: dict[str, SentenceTransformer], tmp_path: Path
) -> None:
    save(extend(bases["bert"], ["a", "b"]), tmp_path / "experts")
    model: Any = load(tmp_path / "experts", device="cpu")
    before = fingerprint_of(model, "a")
    model.use_routes(["a"], idle="cpu")
    model.use_routes(["a", "b"])
    assert fingerprint_of(copy.deepcopy(model), "a") == before
    with torch.no_grad():
        next(each for name, each in model.named_parameters() if ".experts.0." in name).add_(1.0)
    assert isinstance(model, ExpertEncoder)
    assert fingerprint_of(copy.deepcopy(model), "a") != before


def test_a_model_in_memory_keeps_its_hash_where_its_folder_is_replaced(
    model: SentenceTransformer, folder: Path
) -> None:
    unasked, before = copy.deepcopy(model), fingerprint_of(model)
    add_to_weights(other := copy.deepcopy(model))
    save(other, folder, overwrite=True)
    replaced = fingerprint_of(load(folder, device="cpu"))
    assert fingerprint_of(model) == before
    assert fingerprint_of(unasked) not in (replaced, fingerprint_of(other))
    shutil.rmtree(folder)
    assert fingerprint_of(model) == before


def test_a_folder_that_is_being_replaced_gives_no_hash(
    model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(path: Path) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr("sentence_experts.models.sources.file_state", vanished)
    assert fingerprint_of(model) == weights_fingerprint(model)


def test_another_working_directory_changes_no_hash(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = load(folder.name, device="cpu")
    add_to_weights(other := copy.deepcopy(model))
    save(other, tmp_path / "elsewhere" / folder.name)
    os.chdir(tmp_path / "elsewhere")
    assert fingerprint_of(model) == folder_fingerprint(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "max_seq_length", 5),
        lambda model: setattr(model, "truncate_dim", 8),
        lambda model: setattr(model, "default_prompt_name", "query"),
        lambda model: set_pooling(model, "cls"),
        lambda model: model.to(torch.bfloat16),
    ],
    ids=["max_length", "truncate_dim", "default prompt", "pooling", "dtype"],
)
@pytest.mark.parametrize("stock", [False, True], ids=["loaded", "stock"])
def test_settings_count_where_they_are_not_those_of_the_files(
    folder: Path, change: Change, stock: bool
) -> None:
    model: Any = SentenceTransformer(str(folder), device="cpu") if stock else load(folder, device="cpu")
    before = fingerprint_with_settings(model)
    change(model)
    assert fingerprint_with_settings(model) != before


def test_vectors_that_are_cut_have_their_own_key(model: SentenceTransformer, folder: Path) -> None:
    key = BatchEncoder(model).cache_key(None)
    model.truncate_dim = 8
    assert BatchEncoder(model).cache_key(None) != key
    save(model, folder.with_name("cut"))
    assert BatchEncoder(load(folder.with_name("cut"), device="cpu")).cache_key(None) != key


def test_a_route_of_a_model_that_cuts_its_vectors_has_its_own_key(folder: Path, tmp_path: Path) -> None:
    """The hash of a route leaves the file of the model's settings out."""
    whole = extend(folder, ["a", "b"], out=tmp_path / "whole")
    whole.truncate_dim = 8
    save(whole, tmp_path / "cut")
    keys = [BatchEncoder(load(tmp_path / name, device="cpu")).cache_key("a") for name in ("whole", "cut")]
    assert keys[0] != keys[1]


def test_what_is_made_of_a_model_with_other_settings_is_made_anew(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    shorter = load(model, max_length=8)
    extend(model, ["a", "b"], out=tmp_path / "experts")
    experts = load(tmp_path / "experts", device="cpu")
    export(experts, tmp_path / "dense", route="a")
    save(model, tmp_path / "saved")
    for attempt in (
        lambda: extend(shorter, ["a", "b"], out=tmp_path / "experts"),
        lambda: export(load(experts, max_length=8), tmp_path / "dense", route="a"),
        lambda: save(shorter, tmp_path / "saved"),
    ):
        with pytest.raises(UsageError, match="made with another"):
            attempt()
    extend(model, ["a", "b"], out=tmp_path / "experts")
    export(load(tmp_path / "experts", device="cpu"), tmp_path / "dense", route="a")
    save(model, tmp_path / "saved")


def test_a_model_that_an_earlier_version_pickled_is_hashed_by_its_weights(
    model: SentenceTransformer, folder: Path
) -> None:
    origin = object.__new__(ModelOrigin)
    origin.__setstate__({"name": "m", "place": str(folder), "changes": {}, "usual_changes": 1, "prompts": {}})
    model.sentence_experts_origin = origin  # type: ignore[assignment]
    assert fingerprint_of(model) == weights_fingerprint(model)
    assert fingerprint_with_settings(model) != fingerprint_of(model)

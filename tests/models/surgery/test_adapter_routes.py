"""Routes that own a low-rank adapter: new ones, and those that peft has trained."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path

import numpy as np
import peft
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.architectures.families import FAMILIES
from sentence_experts.models.architectures.packed_forward import use_packing
from sentence_experts.models.dense import export_route
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.files.saving import save
from sentence_experts.models.sources import set_notes
from sentence_experts.models.surgery.add_drop_routes import add_route, drop_route

ONE_FAMILY = pytest.mark.parametrize("family", ["bert"])


def train_with_peft(base: SentenceTransformer, folder: Path, **settings) -> SentenceTransformer:
    """A copy of the base with a random LoRA of attention and MLP, as peft saves it."""
    model = copy.deepcopy(base)
    use_packing(model, packed=False)
    family = next(one for one in FAMILIES if one.base_model_type == model[0].auto_model.config.model_type)
    targets = [path.rpartition(".")[2] for path in (*family.attention[:1], *family.attention[-1:])]
    targets += [
        name for name, _ in model[0].auto_model.named_modules() if name.endswith(("mlp.Wi", "mlp.up_proj"))
    ]
    targets += ["intermediate.dense"] if family.name == "BERT" else []
    torch.manual_seed(5)
    options = {"r": 3, "lora_alpha": 5, "target_modules": targets, "init_lora_weights": False} | settings
    adapted = peft.get_peft_model(model[0].auto_model, peft.LoraConfig(**options))
    adapted.eval().save_pretrained(str(folder))
    return model


def vectors(encoder: SentenceTransformer, texts: list[str], name: str) -> torch.Tensor:
    return encoder.encode(texts, prompt_name=name, convert_to_tensor=True)


@pytest.mark.parametrize("settings", [{}, {"use_rslora": True, "rank_pattern": {"Wi": 2, "query": 2}}])
def test_an_adapter_of_peft_gives_its_vectors(
    base: SentenceTransformer, texts: list[str], tmp_path: Path, settings: dict[str, object]
) -> None:
    with_peft = train_with_peft(base, tmp_path / "lora", **settings)
    encoder = sentence_experts.extend(base, routes=["use", "field"], kind="adapter", rank=2)
    grown = add_route(add_route(encoder, "lora", adapter=tmp_path / "lora"), "copd")
    expected, plain = with_peft.encode(texts), base.encode(texts)
    assert np.abs(expected - plain).max() > 0.05
    for packed in (True, False):
        use_packing(grown, packed)
        assert np.abs(grown.encode(texts, prompt_name="lora") - expected).max() <= 1e-6
        assert np.abs(grown.encode(texts, prompt_name="field") - plain).max() <= 1e-6
        mixed = grown.encode([f"[{('LORA', 'USE', 'COPD')[n % 3]}]{text}" for n, text in enumerate(texts)])
        wanted = np.where(np.arange(len(texts))[:, None] % 3 == 0, expected, plain)
        assert np.abs(mixed - wanted).max() <= 2e-6
    dense = export_route(grown, "lora")
    assert np.abs(dense.encode(texts) - expected).max() <= 1e-6


@ONE_FAMILY
def test_a_model_in_which_peft_has_put_a_lora_is_not_taken_apart(
    base: SentenceTransformer, tmp_path: Path
) -> None:
    settings = functools.partial(peft.LoraConfig, r=2, target_modules=["dense"], init_lora_weights=False)
    encoder = sentence_experts.extend(base, domains=["copd", "cancer"], default_route="copd")
    with pytest.raises(UsageError, match=r"saved nowhere as it is: save the model, `load` it"):
        encoder.add_adapter(settings())
    encoder.save(str(tmp_path / "base"))
    both = sentence_experts.load(tmp_path / "base")
    for model in (both, dense := copy.deepcopy(base)):
        model.add_adapter(settings())
    for change in (
        lambda: sentence_experts.extend(dense, domains=["copd"]),
        lambda: add_route(both, "more"),
        lambda: drop_route(both, "copd"),
        lambda: export_route(both, "copd"),
    ):
        with pytest.raises(UsageError, match=r"adapters of peft are in the model \(default\)"):
            change()
    with pytest.raises(UsageError, match="only some experts of this model are loaded"):
        sentence_experts.load(tmp_path / "base", routes=["copd"]).add_adapter(settings())
    changed = sentence_experts.load(tmp_path / "base")
    with torch.no_grad():
        next(changed.parameters()).mul_(2)
    with pytest.raises(UsageError, match="saved nowhere as it is"):
        changed.add_adapter(settings())
    both.save(str(tmp_path / "lora"))
    loaded = sentence_experts.load(tmp_path / "lora")
    for text, route in (("text", "copd"), ("text", "cancer"), ("[CANCER]text", None)):
        expected = both.encode(text, prompt_name=route)
        assert np.abs(loaded.encode(text, prompt_name=route) - expected).max() <= 1e-6
    with pytest.raises(
        UsageError, match=r"`routes` has no effect here: .* is a LoRA of a model with experts"
    ):
        sentence_experts.load(tmp_path / "lora", routes=["cancer"])


def test_other_routes_stay_and_each_adapter_has_a_file(
    base: SentenceTransformer, texts: list[str], tmp_path: Path
) -> None:
    train_with_peft(base, tmp_path / "lora")
    one = add_route(
        sentence_experts.extend(base, routes=["use"], kind="head"), "lora", adapter=tmp_path / "lora"
    )
    grown = add_route(add_route(one, "field", kind="adapter", rank=4), "copd")
    fewer = drop_route(grown, "field")
    assert [route.kind for route in grown.routes] == ["head", "adapter", "adapter", "expert"]
    loaded = {}
    for name, model in {"one": one, "grown": grown, "fewer": fewer}.items():
        save(model, tmp_path / name)
        loaded[name] = sentence_experts.load(tmp_path / name, device="cpu")
        for route in ("use", "lora"):
            assert torch.equal(vectors(loaded[name], texts, route), vectors(one, texts, route))
            assert fingerprint_of(loaded[name], route) == fingerprint_of(loaded["one"], route)
    files = {file.name for file in (tmp_path / "grown").glob("model-adapter-*")}
    assert files == {"model-adapter-000.safetensors", "model-adapter-001.safetensors"}
    stock = SentenceTransformer(str(tmp_path / "grown"), device="cpu")
    assert torch.equal(vectors(stock, texts, "lora"), vectors(one, texts, "lora"))
    assert len({fingerprint_of(loaded["grown"], route.name) for route in grown.routes}) == 4
    pooled = loaded["grown"].without_heads()
    assert fingerprint_of(pooled, "use") != fingerprint_of(pooled, "lora")


def test_gradients_reach_the_adapter_of_the_route_alone(base: SentenceTransformer) -> None:
    encoder = sentence_experts.extend(base, routes=["use", "field"], kind="adapter")
    features = encoder.preprocess(["[USE]the heart", "[USE]lungs"])
    gradients = []
    for checkpointing in (False, True):
        encoder.zero_grad()
        model = encoder.routed_model
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        torch.manual_seed(0)
        encoder(dict(features))["sentence_embedding"][:, 0].sum().backward()
        named = dict(encoder.named_parameters())
        ups = [name for name in named if ".adapters.0." in name and name.endswith(".up")]
        assert ups
        assert all(named[name].grad.abs().sum() > 0 for name in ups)
        assert all(named[name.replace(".adapters.0.", ".adapters.1.")].grad is None for name in ups)
        gradients.append([named[name].grad.clone() for name in ups])
    for plain, again in zip(*gradients, strict=True):
        assert torch.allclose(plain, again, atol=1e-6)


@ONE_FAMILY
def test_adapters_that_cannot_be_read(base: SentenceTransformer, tmp_path: Path) -> None:
    encoder = sentence_experts.extend(base, routes=["use"], kind="adapter")
    with pytest.raises(InputError, match="no adapter_config"):
        add_route(encoder, "new", adapter=tmp_path)
    train_with_peft(base, tmp_path / "lora")
    file = tmp_path / "lora" / "adapter_config.json"
    plain = json.loads(file.read_text())
    file.write_text(json.dumps(plain | {"use_dora": True}))
    with pytest.raises(InputError, match="`use_dora` is True"):
        add_route(encoder, "new", adapter=tmp_path / "lora")
    for kind in ("pissa_niter_4", "olora", "corda", "loftq"):
        file.write_text(json.dumps(plain | {"init_lora_weights": kind}))
        with pytest.raises(InputError, match=f"`init_lora_weights` is '{kind}'"):
            add_route(encoder, "new", adapter=tmp_path / "lora")
    file.write_text(json.dumps(plain))
    with pytest.raises(UsageError, match="`rank` is for a new adapter"):
        add_route(encoder, "new", adapter=tmp_path / "lora", kind="adapter", rank=2)
    fewer = copy.deepcopy(base)
    config = fewer[0].auto_model.config
    config.num_hidden_layers = 2
    fewer[0].model = type(fewer[0].auto_model)(config)
    small = sentence_experts.extend(fewer, routes=["use"], kind="adapter")
    with pytest.raises(InputError, match="trained on another base"):
        add_route(small, "new", adapter=tmp_path / "lora")


@ONE_FAMILY
@pytest.mark.parametrize("theirs", ["org/base", "org/another", None])
def test_an_adapter_that_names_another_base_is_warned_of(
    base: SentenceTransformer, tmp_path: Path, caplog: pytest.LogCaptureFixture, theirs: str | None
) -> None:
    encoder = sentence_experts.extend(base, routes=["use"], kind="adapter")
    set_notes(encoder, {"base": "org/base"})
    train_with_peft(base, tmp_path / "lora")
    file = tmp_path / "lora" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": theirs}))
    add_route(encoder, "new", adapter=tmp_path / "lora")
    assert ("trained on org/another" in caplog.text) == (theirs == "org/another")


@ONE_FAMILY
def test_what_adapters_do_not_do(base: SentenceTransformer, tmp_path: Path, mixed: ExpertEncoder) -> None:
    save(sentence_experts.extend(base, routes=["use"], kind="adapter"), tmp_path / "model")
    texts = [f"heart {number}" for number in range(60)]
    with pytest.raises(UsageError, match="do not compute in 8 bits"):
        sentence_experts.export(tmp_path / "model", tmp_path / "small", format="onnx", int8=texts)
    with pytest.raises(UsageError, match="`rank` is for `kind='adapter'`"):
        sentence_experts.extend(base, routes=["use"], rank=2)
    with pytest.raises(UsageError, match="for the adapter to sit on"):
        add_route(mixed, "use", kind="adapter")

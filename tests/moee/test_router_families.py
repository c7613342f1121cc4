"""Every family's routing weights against those computed from hooks on its routers, text by text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel, SwitchTransformersConfig, SwitchTransformersModel

from helpers.small_language_models import (
    DENSE_BLOCKS,
    EXPERTS,
    LAYERS,
    ROUTER_CLASSES,
    SIZES,
    make_language_model,
    tokenizer,
)
from sentence_experts.errors import InputError
from sentence_experts.moee.embedder import MoeEmbedder
from sentence_experts.moee.routing_weights import (
    SIGMOID,
    RouterFamily,
    family_of,
)


@pytest.fixture(scope="module", params=list(SIZES))
def family(request, tmp_path_factory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("families") / request.param
    return request.param, make_language_model(folder, request.param)


def by_hand(folder: Path, model_type: str, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The last token's hidden state, and its softmax (or normalised sigmoid) scores, block after block."""
    model = AutoModel.from_pretrained(folder).eval()
    logits: list[torch.Tensor] = []

    def hook(router, given, output):
        states = given[0].reshape(-1, given[0].shape[-1])
        linear = getattr(router, "layer", router)  # JetMoE's router holds a linear layer
        logits.append(torch.nn.functional.linear(states, linear.weight, getattr(linear, "bias", None))[-1])

    for name, module in model.named_modules():
        # JetMoE's attention has routers of the same class.
        if type(module).__name__ == ROUTER_CLASSES[model_type] and "self_attention" not in name:
            module.register_forward_hook(hook)
    with torch.no_grad():
        hidden = model(torch.tensor([ids])).last_hidden_state[0, -1]
    if family_of(model_type).scoring == SIGMOID:
        scores = [row.sigmoid() / row.sigmoid().sum() for row in logits]
    else:
        scores = [row.softmax(-1) for row in logits]
    return hidden.numpy(), torch.cat(scores).numpy()


def test_states_are_those_of_hooks_on_the_routers(family, texts):
    model_type, folder = family
    embedder = MoeEmbedder(str(folder), device="cpu")
    found = embedder.states(texts)
    blocks = LAYERS - DENSE_BLOCKS.get(model_type, 0)
    assert found.routing.shape == (len(texts), blocks * EXPERTS)
    assert found.routing.reshape(len(texts), blocks, EXPERTS).sum(axis=2) == pytest.approx(1, abs=1e-5)
    words = tokenizer()
    for row, text in enumerate(texts):
        ids = words(f'This sentence: "{text}" means in one word:')["input_ids"]
        hidden, routing = by_hand(folder, model_type, ids)
        assert np.abs(found.hidden[row] - hidden).max() < 1e-5
        assert np.abs(found.routing[row] - routing).max() < 1e-5


def test_states_depend_on_neither_batch_nor_order_nor_padding(family, texts):
    embedder = MoeEmbedder(str(family[1]), device="cpu")
    together = embedder.states(texts)
    backwards = embedder.states(texts[::-1])
    for row, text in enumerate(texts):
        alone = embedder.states([text])
        for part in ("hidden", "routing"):
            expected = getattr(together, part)[row]
            assert np.abs(getattr(alone, part)[0] - expected).max() < 1e-5
            assert np.abs(getattr(backwards, part)[len(texts) - 1 - row] - expected).max() < 1e-5


def test_routers_that_nothing_records_are_hooked(tmp_path, texts, monkeypatch):
    """DeepSeekMoE-16B's way: the gate's input and weight give the logits."""
    folder = make_language_model(tmp_path / "deepseek_v2", "deepseek_v2")
    expected = MoeEmbedder(str(folder), device="cpu").states(texts)
    row = RouterFamily(("deepseek_v2",), gate=ROUTER_CLASSES["deepseek_v2"])
    monkeypatch.setattr("sentence_experts.moee.transformer.family_of", lambda model_type: row)
    found = MoeEmbedder(str(folder), device="cpu").states(texts)
    assert np.abs(found.routing - expected.routing).max() < 1e-6


def encoder(folder: Path) -> Path:
    BertModel(
        BertConfig(
            vocab_size=60, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
        )
    ).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def switch(folder: Path) -> Path:
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2}
    config = SwitchTransformersConfig(vocab_size=60, num_experts=2, expert_capacity=4, **sizes)
    SwitchTransformersModel(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("make", "name"), [(encoder, "bert"), (switch, "switch_transformers")])
def test_a_model_without_readable_routers_is_refused_by_name(tmp_path, make, name):
    with pytest.raises(InputError, match=f"is a {name} model without routers"):
        MoeEmbedder(str(make(tmp_path / "model")), device="cpu")


def test_a_missing_tokenizer_is_one_line(tmp_path):
    folder = make_language_model(tmp_path / "olmoe", "olmoe")
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(InputError, match="tokenizer"):
        MoeEmbedder(str(folder), device="cpu")

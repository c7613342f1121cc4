"""LoRA: no change at the start, a frozen base, checkpoints, a plain model after merging."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.errors import UsageError
from sentence_experts.models.architectures.families import family_of
from sentence_experts.models.architectures.lora import add_lora, merge_lora
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.saving import save
from sentence_experts.models.loading import load

NAMES = ["copd", "cvd"]
ADDED = ".parametrizations.weight.0."
TEXTS = ["the heart pumps blood", "skin cancer grows", "lungs", "plants roots leaves seeds"]


@pytest.fixture
def encoder(base: SentenceTransformer, scatter: Callable[..., SentenceTransformer]) -> SentenceTransformer:
    return scatter(sentence_experts.extend(base, NAMES))


def vectors(encoder: SentenceTransformer) -> np.ndarray:
    """Vectors of a batch that holds both experts."""
    return ExpertEncoder.encode(encoder, TEXTS, expert_ids=[0, 1, 0, 1])


def some_steps(encoder: SentenceTransformer, steps: int = 3) -> None:
    """A few updates of whatever is trainable."""
    model = encoder[0].auto_model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    batch = encoder.preprocess([f"{encoder.prompts[name]}{text}" for name in NAMES for text in TEXTS])
    batch = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch).last_hidden_state.square().sin().sum().backward()
        optimizer.step()
    model.eval()


def test_a_new_adapter_changes_no_vector(encoder: SentenceTransformer) -> None:
    before = vectors(encoder)
    add_lora(encoder, rank=2)
    assert np.array_equal(vectors(encoder), before)


def test_training_moves_adapter_and_experts_and_leaves_the_adapted_weights_bit_equal(
    encoder: SentenceTransformer,
) -> None:
    held = "norm" if encoder[0].auto_model.config.model_type != "bert_experts" else "LayerNorm"
    for name, parameter in encoder.named_parameters():
        if held in name:
            parameter.requires_grad_(False)
    model = encoder[0].auto_model
    family, blocks = family_of(model.config.model_type), model.config.num_hidden_layers
    add_lora(encoder, rank=2)
    adapted = {name.partition(".parametrizations")[0] for name in model.state_dict() if ADDED in name}
    assert adapted == {f"{family.blocks}.{i}.{path}" for i in range(blocks) for path in family.attention}
    before = {name: weight.clone() for name, weight in encoder.state_dict().items()}
    some_steps(encoder)
    moved = {name for name, weight in encoder.state_dict().items() if not torch.equal(weight, before[name])}
    frozen = {name for name in before if name.endswith(".original")}
    assert frozen
    assert not frozen & moved
    assert {name for name in before if ADDED in name} <= moved
    assert {name for name in before if ".experts." in name and held not in name} <= moved
    assert any("embeddings" in name for name in moved), "what was trainable stays so"
    assert not any(held in name for name in moved), "what was frozen stays so"


def test_a_saved_model_comes_back_with_its_adapter(encoder: SentenceTransformer, tmp_path: Path) -> None:
    add_lora(encoder, rank=2)
    some_steps(encoder)
    save(encoder, tmp_path / "model")
    again = load(tmp_path / "model", device="cpu")
    assert again[0].auto_model.config.lora_rank == 2
    assert np.array_equal(vectors(again), vectors(encoder))
    assert {name: tuple(w.shape) for name, w in again.state_dict().items()} == {
        name: tuple(w.shape) for name, w in encoder.state_dict().items()
    }


def test_merging_gives_a_plain_model_with_the_same_vectors(
    encoder: SentenceTransformer, tmp_path: Path
) -> None:
    keys = sorted(encoder.state_dict())
    add_lora(encoder, rank=2)
    some_steps(encoder)
    adapted = vectors(encoder)
    merge_lora(encoder)
    assert sorted(encoder.state_dict()) == keys
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    assert np.abs(vectors(encoder) - adapted).max() < 1e-5
    save(encoder, tmp_path / "merged")
    assert np.abs(vectors(load(tmp_path / "merged", device="cpu")) - adapted).max() < 1e-5
    add_lora(encoder, rank=1)  # and it can be adapted again


def test_the_product_of_the_two_matrices_is_added(encoder: SentenceTransformer) -> None:
    model = encoder[0].auto_model
    family = family_of(model.config.model_type)
    layer = model.get_submodule(f"{family.blocks}.1.{family.attention[0]}")
    before = layer.weight.detach().clone()
    add_lora(encoder, rank=2)
    added = layer.parametrizations.weight[0]
    torch.nn.init.normal_(added.up)
    merge_lora(encoder)
    assert torch.allclose(layer.weight - before, added.up @ added.down, atol=1e-5)


def test_gradient_checkpointing_gives_the_same_gradients(encoder: SentenceTransformer) -> None:
    add_lora(encoder, rank=2)
    model = encoder[0].auto_model
    for parameter in model.get_input_embeddings().parameters():
        parameter.requires_grad_(False)
    for name, parameter in model.named_parameters():
        if name.endswith(f"{ADDED}up"):
            torch.nn.init.normal_(parameter, std=0.1)
    batch = encoder.preprocess([encoder.prompts[name] + "lungs" for name in NAMES])
    batch = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.train()
            model.activation_checkpointing_enable()
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
        model.zero_grad()
        model(**batch).last_hidden_state.square().sin().sum().backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert any(ADDED in name for name in gradients[0])
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=1e-6), name


@pytest.mark.parametrize("family", ["bert"])
def test_what_cannot_be_adapted(base: SentenceTransformer, encoder: SentenceTransformer) -> None:
    add_lora(encoder, rank=2)
    with pytest.raises(UsageError, match="give the model of the run"):
        add_lora(encoder, rank=2)
    with pytest.raises(UsageError, match="layers='none'"):
        add_lora(base, rank=2)

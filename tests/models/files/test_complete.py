"""Checkpoints without some of their weights, or with weights of others, are refused by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertForMaskedLM

import sentence_experts
from sentence_experts.errors import InputError
from sentence_experts.models.files.saving import save

Weights = dict[str, torch.Tensor]


def first_matrix(weights: Weights) -> str:
    """A weight inside a block."""
    return next(name for name in sorted(weights) if "layer" in name and weights[name].dim() == 2)


def drop(weights: Weights) -> None:
    del weights[first_matrix(weights)]


def add(weights: Weights) -> None:
    name = first_matrix(weights)
    weights[name.replace(".0.", ".9.")] = weights[name].clone()


def rename(weights: Weights) -> None:
    weights["x" + first_matrix(weights)] = weights.pop(first_matrix(weights))


def reshape(weights: Weights) -> None:
    weights[first_matrix(weights)] = weights[first_matrix(weights)][:-1]


FAULTS = {
    drop: "missing",
    add: "not of this model",
    rename: "missing",
    reshape: "shape",
}
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)


def damage(folder: Path, file: str, fault: Callable[[Weights], None]) -> None:
    weights = {name: weight.clone() for name, weight in load_file(folder / file).items()}
    fault(weights)
    save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / file)


@each_fault
def test_a_dense_base(
    base_folders: dict[str, Path], tmp_path: Path, fault: Callable[[Weights], None]
) -> None:
    base = tmp_path / "base"
    shutil.copytree(base_folders["bert"], base)
    damage(base, "model.safetensors", fault)
    for use in (sentence_experts.load, lambda folder: sentence_experts.extend(folder, ["a", "b"])):
        with pytest.raises(InputError, match=rf"^{base}/model.safetensors: weights.*{FAULTS[fault]}.*again"):
            use(base)


@each_fault
@pytest.mark.parametrize("file", ["model-shared.safetensors", "model-expert-001.safetensors"])
def test_a_model_with_experts_whole_and_paged(
    bases: dict[str, SentenceTransformer], tmp_path: Path, file: str, fault: Callable[[Weights], None]
) -> None:
    folder = tmp_path / "model"
    save(sentence_experts.extend(bases["bert"], ["a", "b"]), folder)
    (folder / "made_from.json").unlink()  # which knows the hash of every file
    damage(folder, file, fault)
    message = rf"^{folder}/model.*(missing|not of this model|another shape|lacks).*again"
    for settings in ({}, {"routes": ["b"]}, {"max_resident_experts": 1}):
        with pytest.raises(InputError, match=message):
            sentence_experts.load(folder, **settings).encode(["x"], prompt_name="b")


@pytest.mark.parametrize("added", [True, False])
def test_an_index_that_is_not_of_the_model_is_refused_before_an_expert_is_called(
    bases: dict[str, SentenceTransformer], tmp_path: Path, added: bool
) -> None:
    folder = tmp_path / "model"
    save(sentence_experts.extend(bases["bert"], ["a", "b"]), folder)
    index = folder / "model.safetensors.index.json"
    name, other = "encoder.layer.0.experts.1.", f"encoder.layer.0.experts.{2 if added else 0}."
    (folder / "made_from.json").unlink()
    index.write_text(index.read_text().replace(name, other))
    with pytest.raises(InputError, match=f"^{index}: weights are missing: {name}.*again"):
        sentence_experts.load(folder, routes=["a"])


def test_heads_that_an_encoder_does_not_use_are_left_out(
    tmp_path: Path, plain_folders: dict[str, Path]
) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    folder = tmp_path / "masked"
    shutil.copytree(plain_folders["bert"], folder)
    BertForMaskedLM(BertConfig(vocab_size=220, max_position_embeddings=64, **sizes)).save_pretrained(folder)
    assert any(name.startswith("cls.") for name in load_file(folder / "model.safetensors"))
    model = sentence_experts.load(folder)  # it has no pooler either
    again = sentence_experts.load(folder)
    assert torch.equal(model.encode("x", convert_to_tensor=True), again.encode("x", convert_to_tensor=True))


def test_a_dense_head_without_its_weights(base_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save(sentence_experts.extend(base_folders["bert"], ["a"], head="tanh"), folder)
    (folder / "made_from.json").unlink()
    damage(folder, "3_Dense/model.safetensors", lambda weights: weights.pop(next(iter(weights))))
    with pytest.raises(InputError, match=rf"^{folder}: .*Missing key.*") as error:
        sentence_experts.load(folder)
    assert "\n" not in str(error.value)

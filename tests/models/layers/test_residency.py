"""Experts that wait on disk or CPU: a part of a model gives the whole's vectors, and never stands for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.fresh_process import run_fresh
from helpers.saved_weights import weights_of
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.dense import average_experts, export_route
from sentence_experts.models.files.saving import save
from sentence_experts.models.surgery.add_drop_routes import drop_route

PREFIXES = {"query": "search query: ", "document": "search document: ", "cluster": "clustering: "}


@pytest.fixture
def folder(base: SentenceTransformer, scatter: Callable[..., SentenceTransformer], tmp_path: Path) -> Path:
    """A saved model with three experts that differ, norms included, in two of four blocks."""
    encoder = sentence_experts.extend(
        base, list(PREFIXES), route="prefix", prefixes=PREFIXES, expert_norms=True, layers="alternate"
    )
    save(scatter(encoder), tmp_path / "model")
    return tmp_path / "model"


def expert_parameters(encoder: SentenceTransformer) -> int:
    return sum(p.numel() for name, p in encoder.named_parameters() if ".experts." in name)


def test_a_part_gives_the_vectors_of_the_whole_to_the_bit(folder: Path, texts: list[str]) -> None:
    whole = sentence_experts.load(folder, device="cpu")
    part = sentence_experts.load(folder, device="cpu", routes=["document"])
    assert part.loaded_routes == ("document",)
    assert expert_parameters(part) * 3 == expert_parameters(whole)
    assert part.parameter_counts()[1] == whole.parameter_counts()[1]
    expected = whole.encode(texts, prompt_name="document")
    assert np.array_equal(part.encode(texts, prompt_name="document"), expected)
    for route in ("query", "cluster"):
        with pytest.raises(RouteError, match=rf"'{route}' is not loaded.*use_routes"):
            part.encode(texts, prompt_name=route)
    part.use_routes(["query", "cluster"])
    assert part.loaded_routes == ("query", "cluster")
    for route in part.loaded_routes:
        expected = whole.encode(texts, prompt_name=route)
        assert np.array_equal(part.encode(texts, prompt_name=route), expected)
    with pytest.raises(RouteError, match="'document' is not loaded"):
        part.encode("x", expert_ids=part.experts.index("document"))


@pytest.mark.parametrize("idle", ["disk", "cpu"])
@pytest.mark.parametrize("family", ["nomic_bert"], indirect=True)
def test_experts_of_a_whole_model_go_and_come_back(folder: Path, idle: str) -> None:
    encoder = sentence_experts.load(folder, device="cpu")
    before = {route: encoder.encode("lungs", prompt_name=route) for route in PREFIXES}
    weights = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.use_routes(["query"], idle)
    assert expert_parameters(encoder) * 3 == sum(v.numel() for k, v in weights.items() if ".experts." in k)
    assert np.array_equal(encoder.encode("lungs", prompt_name="query"), before["query"])
    encoder.use_routes(list(PREFIXES))
    assert all(torch.equal(value, weights[name]) for name, value in encoder.state_dict().items())
    assert encoder.state_dict().keys() == weights.keys()
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    for route, vector in before.items():
        assert np.array_equal(encoder.encode("lungs", prompt_name=route), vector)


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_unneeded_weights_are_not_read(folder: Path, texts: list[str]) -> None:
    """The other experts' files are gone; in one file with all, their numbers are spoiled."""
    expected = sentence_experts.load(folder, device="cpu").encode(texts, prompt_name="cluster")
    weights = weights_of(folder)
    for number in range(2):
        (folder / f"model-expert-00{number}.safetensors").unlink()
    part = sentence_experts.load(folder, device="cpu", routes=["cluster"])
    assert np.array_equal(part.encode(texts, prompt_name="cluster"), expected)
    with pytest.raises(InputError, match=r"model-expert-000.safetensors: changed since"):
        part.use_routes(["query"])
    (folder / "made_from.json").unlink()
    for name in weights:
        if ".experts.0." in name or ".experts.1." in name:
            weights[name] = torch.full_like(weights[name], torch.nan)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").unlink()
    part = sentence_experts.load(folder, device="cpu", routes=["cluster"])
    assert np.array_equal(part.encode(texts, prompt_name="cluster"), expected)


@pytest.mark.parametrize("family", ["bert"], indirect=True)
@pytest.mark.parametrize("settings", [{"routes": ["query"]}, {"max_resident_experts": 1}])
def test_a_damaged_expert_is_refused_when_it_is_needed(folder: Path, settings: dict[str, Any]) -> None:
    file = folder / "model-expert-000.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 0x80  # the sign of a weight
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"model-expert-000.safetensors has changed since it was written"):
        sentence_experts.load(folder, device="cpu", **settings).encode("lungs", prompt_name="query")
    other = sentence_experts.load(folder, device="cpu", max_resident_experts=1)
    other.encode("lungs", prompt_name="document")


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_a_part_is_never_taken_for_the_whole(folder: Path, tmp_path: Path) -> None:
    part = sentence_experts.load(folder, device="cpu", routes=["query"])
    for refused in (
        lambda: export_route(part, "query"),
        lambda: average_experts(part),
        lambda: drop_route(part, "query"),
    ):
        with pytest.raises(UsageError, match="only some experts"):
            refused()


@pytest.mark.parametrize("idle", ["disk", "cpu"])
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_a_part_is_saved_as_the_whole(folder: Path, idle: str, limit: int | None, tmp_path: Path) -> None:
    part = sentence_experts.load(folder, device="cpu", max_resident_experts=limit)
    part.use_routes(["query"], idle)
    save(part, tmp_path / "copy")
    assert part.loaded_routes == ("query",)
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    assert config == json.loads((folder / "config.json").read_text())
    assert not config["experts_on_disk"]
    copied, original = (weights_of(each) for each in (tmp_path / "copy", folder))
    assert copied.keys() == original.keys()
    assert all(torch.equal(value, original[name]) for name, value in copied.items())


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_changes_are_not_lost(folder: Path) -> None:
    encoder = sentence_experts.load(folder, device="cpu")
    changed = next(p for name, p in encoder.named_parameters() if ".experts.1." in name)
    with torch.no_grad():
        changed.add_(1)
    after = encoder.encode("lungs", prompt_name="document")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"'document' has changed"):
            encoder.use_routes(["query"], idle="disk")
        encoder.use_routes(["query"], idle="cpu")  # and from there to the disk: refused as well
    encoder.use_routes(["document"])
    assert np.array_equal(encoder.encode("lungs", prompt_name="document"), after)


@pytest.mark.parametrize("family", ["bert"], indirect=True)
def test_what_cannot_be_loaded_is_reported(folder: Path, bases: dict[str, SentenceTransformer]) -> None:
    with pytest.raises(RouteError, match=r"no route is named 'quary'; .*query"):
        sentence_experts.load(folder, device="cpu", routes=["quary"])
    with pytest.raises(RouteError, match="at least one"):
        sentence_experts.load(folder, device="cpu", routes=[])
    made = sentence_experts.extend(bases["bert"], ["a", "b"])
    with pytest.raises(UsageError, match="save the model"):
        made.use_routes(["a"])
    part = sentence_experts.load(folder, device="cpu", routes=["query"])
    file = folder / "model-expert-001.safetensors"
    save_file(load_file(file), file, metadata={"format": "pt", "again": "yes"})
    with pytest.raises(InputError, match="changed since"):
        part.use_routes(["document"])
    (folder / "model-shared.safetensors").unlink()
    with pytest.raises(InputError, match="model"):
        sentence_experts.load(folder, device="cpu", routes=["query"])


def test_models_without_idle_experts(bases: dict[str, SentenceTransformer], tmp_path: Path) -> None:
    learned = sentence_experts.extend(bases["bert"], ["a", "b"], router="token", route="prefix")
    save(learned, tmp_path / "learned")
    with pytest.raises(UsageError, match="all experts must be loaded"):
        sentence_experts.load(tmp_path / "learned", device="cpu", routes=["a"])
    dense = sentence_experts.extend(bases["bert"], ["a", "b"], layers="none", default_route="b")
    save(dense, tmp_path / "dense")
    same = sentence_experts.load(tmp_path / "dense", device="cpu", routes=["query"])  # the default's name
    assert np.array_equal(same.encode("x", prompt_name="a"), dense.encode("x", prompt_name="a"))


@pytest.mark.parametrize("family", ["modernbert"], indirect=True)
def test_a_fresh_process_and_several_files(folder: Path) -> None:
    """Shards as transformers writes them for a large model; the default route's other names too."""
    expected = sentence_experts.load(folder, device="cpu").encode("lungs", prompt_name="query")
    weights = weights_of(folder)
    (folder / "made_from.json").unlink()
    for file in folder.glob("model*.safetensors"):
        file.unlink()
    names = {name: f"model-0000{number % 2 + 1}-of-00002.safetensors" for number, name in enumerate(weights)}
    for file in set(names.values()):
        part = {name: weights[name] for name in weights if names[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 0}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    code = """
import sys, sentence_experts
encoder = sentence_experts.load(sys.argv[1], device="cpu", routes=["query"])
print(encoder.encode("lungs", prompt_name="query").tobytes().hex())
"""
    done = run_fresh(code, folder)
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.frombuffer(bytes.fromhex(done.stdout.strip()), dtype=np.float32), expected)

"""Experts that come when a text calls them: the whole model's vectors in a part of its memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.hub import running_hub
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.files.saving import save
from sentence_experts.models.layers.weight_files import INDEX, WEIGHTS, WeightFiles

NAMES = ["a", "b", "c", "d"]
ROUTED = [
    f"[{name.upper()}]{text}" for text in ("heart", "lungs and air", "blood in vessels") for name in NAMES
]


@pytest.fixture(scope="module")
def folder(bases: Any, scatter: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("paged") / "model"
    save(scatter(sentence_experts.extend(bases["bert"], NAMES)), place)
    return place


@pytest.fixture(scope="module")
def whole(folder: Path) -> SentenceTransformer:
    return sentence_experts.load(folder, device="cpu")


def is_mapped(folder: Path) -> bool:
    """Whether this process has mapped a file of an expert."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return any(f"{folder.resolve()}/model-expert" in line for line in lines)


def test_experts_come_when_called_and_the_oldest_leaves(
    folder: Path, whole: SentenceTransformer, tmp_path: Path
) -> None:
    place = Path(shutil.copytree(folder, tmp_path / "copy"))  # the whole model has the other one mapped
    part = sentence_experts.load(place, device="cpu", max_resident_experts=2)
    assert part.loaded_routes == ()
    for route, loaded in (("a", "a"), ("c", "ac"), ("a", "ac"), ("d", "ad"), ("b", "bd")):
        assert np.array_equal(
            part.encode("lungs", prompt_name=route), whole.encode("lungs", prompt_name=route)
        )
        assert set(part.loaded_routes) == set(loaded)
        assert not is_mapped(place), "what is written into its file would change the expert"


def test_a_batch_that_calls_more_is_served(folder: Path, whole: SentenceTransformer) -> None:
    part = sentence_experts.load(folder, device="cpu", max_resident_experts=1)
    assert np.array_equal(part.encode(ROUTED), whole.encode(ROUTED))
    assert len(part.loaded_routes) == 1


def test_an_expert_that_was_changed_in_memory_is_not_dropped(folder: Path) -> None:
    part = sentence_experts.load(folder, device="cpu", max_resident_experts=1)
    part.encode("lungs", prompt_name="a")
    part.to(torch.float64)  # its weights are those of the file still
    part.encode("lungs", prompt_name="b")
    with torch.no_grad():
        for name, weight in part.named_parameters():
            if ".experts.1." in name:
                weight.mul_(0.9)
    changed = part.encode("lungs", prompt_name="b")
    with pytest.raises(UsageError, match=r"'b' has changed since it was loaded.*without a limit"):
        part.encode("lungs", prompt_name="a")
    assert np.array_equal(part.encode("lungs", prompt_name="b"), changed)
    part.limit_experts(2)  # another one goes in its place
    for route in "acda":
        part.encode("lungs", prompt_name=route)
    assert np.array_equal(part.encode("lungs", prompt_name="b"), changed)


def _replace_one_row(weight: torch.Tensor) -> None:
    changed = weight.data.clone()
    changed[-1] = 0
    weight.data = changed


def test_changes_of_data_and_of_experts_that_waited_on_the_cpu_count(folder: Path) -> None:
    for change in (lambda weight: weight.data.mul_(0.9), _replace_one_row):
        part = sentence_experts.load(folder, device="cpu", max_resident_experts=1)
        part.encode("lungs", prompt_name="a")
        for name, weight in part.named_parameters():
            if ".experts.0." in name:
                change(weight)
        with pytest.raises(UsageError, match="'a' has changed since"):
            part.encode("lungs", prompt_name="b")
    model = sentence_experts.load(folder, device="cpu")
    with torch.no_grad():
        next(weight for name, weight in model.named_parameters() if ".experts.0." in name).mul_(0.9)
    model.use_routes(["b"], idle="cpu")
    model.limit_experts(2)
    model.use_routes(["a", "b"], idle="cpu")
    model.limit_experts(1)
    model.encode("lungs", prompt_name="b")
    with pytest.raises(UsageError, match="'a' has changed since"):
        model.encode("lungs", prompt_name="c")


def test_threads_share_the_experts(folder: Path, whole: SentenceTransformer) -> None:
    part = sentence_experts.load(folder, device="cpu", max_resident_experts=2)
    expected = {route: whole.encode("lungs", prompt_name=route) for route in NAMES}
    features = {route: part.preprocess([f"[{route.upper()}]lungs"]) for route in NAMES}

    def encode(number: int) -> bool:
        route = NAMES[number % 4]
        with torch.inference_mode():
            found = part(dict(features[route]))["sentence_embedding"].numpy()
        return np.allclose(found[0], expected[route], atol=1e-6)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(encode, range(60)))
    assert len(part.loaded_routes) <= 2


def test_what_cannot_come_and_go(folder: Path, bases: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="greater than or equal to 1"):
        sentence_experts.load(folder, device="cpu", max_resident_experts=0)
    part = sentence_experts.load(folder, device="cpu", max_resident_experts=2)
    part.train()
    with pytest.raises(UsageError, match="cannot be trained"):
        part(part.preprocess(["[A]x"]))
    learned = sentence_experts.extend(bases["bert"], ["a", "b"], router="learned", route="none")
    save(learned, tmp_path / "learned")
    with pytest.raises(UsageError, match="all experts must be loaded"):
        sentence_experts.load(tmp_path / "learned", device="cpu", max_resident_experts=1)


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with running_hub(folder, monkeypatch) as server:
        yield server.fetched


def test_only_the_called_experts_are_fetched_from_the_hub(
    hub: list[str], whole: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    part = sentence_experts.load("me/model", device="cpu", routes=["b"])
    fetched = [name for name in hub if name.startswith("model-expert")]
    assert fetched == ["model-expert-001.safetensors"]
    assert np.array_equal(part.encode("lungs", prompt_name="b"), whole.encode("lungs", prompt_name="b"))
    part.use_routes(["d"])
    assert [name for name in hub if name.startswith("model-expert")][1:] == ["model-expert-003.safetensors"]
    assert np.array_equal(part.encode("lungs", prompt_name="d"), whole.encode("lungs", prompt_name="d"))


def test_a_file_that_is_written_to_does_not_change_the_expert_in_memory(
    folder: Path, whole: SentenceTransformer, tmp_path: Path
) -> None:
    place = Path(shutil.copytree(folder, tmp_path / "model"))
    model = sentence_experts.load(place, device="cpu", max_resident_experts=1)
    model.encode("lungs", prompt_name="a")
    for number in (0, 1):
        (place / f"model-expert-00{number}.safetensors").write_bytes(b"")
    assert np.array_equal(model.encode("lungs", prompt_name="a"), whole.encode("lungs", prompt_name="a"))
    with pytest.raises(InputError, match=r"model-expert-001.safetensors: changed since the model was loaded"):
        model.encode("lungs", prompt_name="b")


def test_the_file_of_an_expert_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, read = sentence_experts.load(folder, device="cpu", max_resident_experts=1), list[str]()
    part = WeightFiles._read_part
    monkeypatch.setattr(WeightFiles, "_read_part", lambda self, name: read.append(name) or part(self, name))
    model.encode("lungs", prompt_name="c")
    assert read == ["model-expert-002.safetensors"]


def test_a_file_that_goes_while_torch_opens_it_has_changed(
    folder: Path, whole: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shutil.copytree(folder, tmp_path / "model")
    weights = {}
    for file in place.glob("model*.safetensors"):
        weights |= load_file(file)
        file.unlink()
    (place / INDEX).unlink()
    (place / "made_from.json").unlink()
    save_file(weights, place / WEIGHTS, metadata={"format": "pt"})
    model = sentence_experts.load(place, device="cpu", max_resident_experts=1)
    assert np.array_equal(model.encode("lungs", prompt_name="b"), whole.encode("lungs", prompt_name="b"))

    def lose(path: str, **options: Any) -> None:
        Path(path).unlink()
        raise RuntimeError(f"unable to open file <{path}> in read-only mode")

    monkeypatch.setattr(safetensors, "safe_open", lose)
    with pytest.raises(InputError, match="changed since the model was loaded"):
        model.encode("a text", prompt_name="a")


@pytest.mark.parametrize("replaced", [False, True])
def test_an_expert_whose_file_goes_while_it_is_read_has_changed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    place, other = (shutil.copytree(folder, tmp_path / name) for name in ("model", "other"))
    model = sentence_experts.load(place, device="cpu", max_resident_experts=1)
    look = WeightFiles._unchanged

    def look_and_lose(files: WeightFiles, name: str) -> str:
        path = look(files, name)
        if replaced:
            place.rename(tmp_path / "old")
            other.rename(place)
        else:
            Path(path).unlink()
        return path

    monkeypatch.setattr(WeightFiles, "_unchanged", look_and_lose)
    for _ in range(2):  # it goes after it was looked at, or before
        with pytest.raises(InputError, match="changed since the model was loaded"):
            model.encode("a text", prompt_name="a")

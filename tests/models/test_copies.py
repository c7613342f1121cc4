"""Models from `load` survive pickle, deepcopy, torch.save and other processes, with the same vectors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.files.saving import save
from sentence_experts.models.sources import name_of

NAMES = ["a", "b", "c"]
TEXTS = ["[A]heart", "[C]lungs and air", "[B]blood"]
KINDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "experts": {},
    "experts unpacked": {"packed": False},
    "limited": {"max_resident_experts": 2},
    "learned": {},
}


@pytest.fixture(scope="module")
def folders(
    base_folders: dict[str, Path],
    bases: dict[str, SentenceTransformer],
    scatter: Callable[..., ExpertEncoder],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("copies") / "experts"
    save(scatter(sentence_experts.extend(bases["bert"], NAMES)), place)
    learned = scatter(sentence_experts.extend(bases["bert"], NAMES, router="learned"))
    save(learned, place.with_name("learned"))
    return {"dense": base_folders["bert"], "experts": place, "learned": place.with_name("learned")}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, folders: dict[str, Path]) -> SentenceTransformer:
    folder = folders.get(request.param.split()[0], folders["experts"])
    return sentence_experts.load(folder, device="cpu", **KINDS[request.param])


def saved_by_torch(model: SentenceTransformer) -> SentenceTransformer:
    buffer = BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    loaded: SentenceTransformer = torch.load(buffer, weights_only=False)
    return loaded


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        pytest.param(saved_by_torch, marks=pytest.mark.slow),
    ],
    ids=["deepcopy", "pickle", "torch.save"],
)
def test_a_copy_gives_the_same_vectors(model: SentenceTransformer, copied: Callable[[Any], Any]) -> None:
    before = model.encode(TEXTS[:1])
    other = copied(model)
    assert type(other) is type(model)
    assert np.array_equal(other.encode(TEXTS[:1]), before)
    assert np.array_equal(other.encode(TEXTS), model.encode(TEXTS))
    assert np.array_equal(BatchEncoder(other).encode(TEXTS), BatchEncoder(model).encode(TEXTS))
    assert (name_of(other), fingerprint_of(other)) == (name_of(model), fingerprint_of(model))
    # A change of the copy does not change the model.
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    assert np.array_equal(model.encode(TEXTS[:1]), before)
    assert fingerprint_of(other) != fingerprint_of(model)


def test_a_changed_file_is_noticed_in_a_copy(folders: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(folders["experts"], tmp_path / "model"))
    model = sentence_experts.load(folder, device="cpu", max_resident_experts=1)
    content = pickle.dumps(model)
    file = folder / "model-expert-001.safetensors"
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(sentence_experts.InputError, match="changed since"):
        pickle.loads(content).encode("[B]x")

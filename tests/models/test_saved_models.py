"""Models that version 0.1.0 saved load, and give the vectors that they gave (`fixtures/saved_models`)."""

from __future__ import annotations

import json
import os
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.compat.onnxruntime import can_multiply_int8
from sentence_experts.encoding.encoder import BatchEncoder, cosines
from sentence_experts.errors import InputError
from sentence_experts.models.loading import load
from sentence_experts.models.routing.known_routes import KnownRoutes

SAVED = Path(__file__).parents[1] / "fixtures" / "saved_models"
EXPECTED = json.loads((SAVED / "expected.json").read_text(encoding="utf-8"))
TEXTS: list[str] = EXPECTED["texts"]
MODELS: dict[str, dict[str, Any]] = EXPECTED["models"]
TOLERANCE = 1e-5  # of the largest number of the vectors
LIMIT = 1_500_000  # bytes of all folders

each_model = pytest.mark.parametrize("name", sorted(MODELS))


@pytest.fixture(scope="module")
def vectors() -> dict[str, np.ndarray]:
    """Model/way -> the vectors of `TEXTS`, as they were."""
    with np.load(SAVED / "expected.npz") as file:
        return dict(file)


def assert_same(found: Any, expected: np.ndarray, what: str) -> None:
    assert found.dtype == expected.dtype == np.float32
    assert found.shape == expected.shape
    difference = np.abs(found - expected).max() / np.abs(expected).max()
    assert difference <= TOLERANCE, f"{what}: {difference:.1e} of the largest number"


def test_every_folder_has_its_vectors(vectors: dict[str, np.ndarray]) -> None:
    assert {path.name for path in SAVED.iterdir() if path.is_dir()} == set(MODELS)
    wanted = {f"{name}/{way}" for name, model in MODELS.items() for way in model["ways"]}
    wanted |= {
        f"{name}/{route} in 8 bits" for name, model in MODELS.items() for route in model.get("in_8_bits", [])
    }
    assert wanted == set(vectors)
    files = [file for file in SAVED.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < LIMIT


def test_each_family_is_there_with_each_router() -> None:
    configs = [json.loads((SAVED / name / "config.json").read_text(encoding="utf-8")) for name in MODELS]
    found = {(config["model_type"], config["router"]) for config in configs if "router" in config}
    families = ("bert_experts", "modernbert_experts", "nomic_bert_experts")
    assert found == set(product(families, ("route", "learned", "token")))


@each_model
def test_a_saved_model_gives_the_vectors_that_it_gave(name: str, vectors: dict[str, np.ndarray]) -> None:
    encoder = sentence_experts.load(SAVED / name, device="cpu", int8=False)
    assert list(encoder.experts) == MODELS[name]["experts"]
    for way, arguments in MODELS[name]["ways"].items():
        assert_same(encoder.encode(TEXTS, **arguments), vectors[f"{name}/{way}"], way)


@each_model
def test_stock_sentence_transformers_gives_them_too(name: str, vectors: dict[str, np.ndarray]) -> None:
    """But for experts by name and automatic routes, which are our encoder's."""
    encoder = SentenceTransformer(str(SAVED / name), device="cpu")
    assert type(encoder) is SentenceTransformer
    ways = MODELS[name]["ways"]
    stock = {way: given for way, given in ways.items() if way != "auto" and "expert_ids" not in given}
    assert stock
    for way, arguments in stock.items():
        assert_same(encoder.encode(TEXTS, **arguments), vectors[f"{name}/{way}"], way)


@pytest.mark.parametrize("name", [name for name in sorted(MODELS) if "chosen_routes" in MODELS[name]])
def test_automatic_routes_choose_what_they_chose(name: str) -> None:
    encoder = sentence_experts.load(SAVED / name, device="cpu")
    routes, probabilities = encoder.choose_route(TEXTS)
    assert routes == MODELS[name]["chosen_routes"]
    assert np.allclose(probabilities, MODELS[name]["probabilities"], atol=1e-4)


@pytest.mark.parametrize("name", [name for name in sorted(MODELS) if "chosen_experts" in MODELS[name]])
def test_learned_routers_choose_what_they_chose(name: str) -> None:
    encoder = sentence_experts.load(SAVED / name, device="cpu")
    choices = encoder.router_choices(TEXTS, encoder.default_prompt_name)
    assert [list(experts) for experts in choices.names] == MODELS[name]["chosen_experts"]


@pytest.mark.parametrize("name", ["bert-token", "bert-one-file"])
def test_one_expert_loaded_alone_gives_its_vectors(name: str, vectors: dict[str, np.ndarray]) -> None:
    for route in ("copd", "cvd"):
        part = sentence_experts.load(SAVED / name, device="cpu", routes=[route])
        assert part.loaded_routes == (route,)
        assert_same(part.encode(TEXTS, prompt_name=route), vectors[f"{name}/{route}"], route)


@pytest.mark.skipif(not can_multiply_int8(), reason="8 bits need ONNX Runtime")
@pytest.mark.parametrize("name", [name for name in sorted(MODELS) if "in_8_bits" in MODELS[name]])
def test_a_calibrated_model_is_near_its_vectors_in_8_bits(name: str, vectors: dict[str, np.ndarray]) -> None:
    encoder = BatchEncoder(load(SAVED / name, device="cpu"))
    for route in MODELS[name]["in_8_bits"]:
        found, expected = encoder.encode(TEXTS, route), vectors[f"{name}/{route} in 8 bits"]
        assert cosines(found, expected).min() >= 0.999
        # As they are, and not those of full precision.
        assert np.abs(found - expected).max() < np.abs(found - vectors[f"{name}/{route}"]).max()


def test_no_folder_of_a_machine_is_named() -> None:
    for file in SAVED.rglob("*"):
        if file.suffix in (".json", ".safetensors"):
            content = file.read_bytes()
            assert not [place for place in (b"/tmp", b"/home", b"/root", b"/Users") if place in content], file


def test_a_model_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    folder = shutil.copytree(
        SAVED / next(name for name in sorted(MODELS) if MODELS[name]["experts"]), tmp_path / "m"
    )
    saved = sentence_experts.load(folder, device="cpu")
    saved.save_pretrained(str(tmp_path / "again"))
    config = tmp_path / "again" / "config.json"
    settings = json.loads(config.read_text())
    assert settings["format_version"] == 1
    config.write_text(json.dumps(settings | {"format_version": 99}))
    for opening in (sentence_experts.load, KnownRoutes.read, lambda place: SentenceTransformer(str(place))):
        with pytest.raises(InputError, match=r"config\.json: written by a newer sentence-experts"):
            opening(tmp_path / "again")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"prompts": {"a": 5}}, "'a' is 5, not a text"),
        ({"prompts": ["a"]}, "`prompts` is .* not names with their texts"),
        ({"prompts": {}, "default_prompt_name": 5}, "'default_prompt_name' is 5, not a text"),
        (["a"], "not a JSON object"),
    ],
)
def test_prompts_that_are_no_texts_are_named(tmp_path: Path, settings: Any, said: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match=rf"config_sentence_transformers\.json: {said}"):
        load(tmp_path)


def test_weights_that_may_not_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries say that there is no such file."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).suffix != ".safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors: this user may not read it"):
        load(tmp_path)

"""Saved models: ordinary sentence-transformers directories, in this process and in others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel

import sentence_experts
from helpers.fresh_process import fresh
from helpers.saved_weights import weights_of
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.encoder import check_experts
from sentence_experts.models.files.saving import save
from sentence_experts.models.surgery.add_drop_routes import drop_route

NAMES = ["copd", "cvd", "skin cancer"]
ROUTED = ["[COPD]the heart", "[CVD]the heart", "[SKIN_CANCER]lungs", "[COPD]", "[CVD]x [COPD] y", "[COPD]air"]


@pytest.fixture
def saved(mixed: SentenceTransformer, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    save(mixed, folder)
    return folder


def test_stock_sentence_transformers_loads_it(mixed: SentenceTransformer, saved: Path) -> None:
    stock = SentenceTransformer(str(saved), device="cpu")
    assert type(stock) is SentenceTransformer
    assert np.array_equal(stock.encode(ROUTED), mixed.encode(ROUTED))
    for name in NAMES:
        expected = mixed.encode(["heart", ""], prompt_name=name)
        assert np.array_equal(stock.encode(["heart", ""], prompt_name=name), expected)
    settings = json.loads((saved / "config_sentence_transformers.json").read_text())
    assert settings["model_type"] == "SentenceTransformer"
    assert not list(saved.rglob("*.bin"))
    assert [file.name for file in saved.rglob("*.py")] == ["modeling_sentence_experts.py"]


def test_what_the_config_says(saved: Path, family: str) -> None:
    config = json.loads((saved / "config.json").read_text())
    assert config["model_type"] == f"{family}_experts"
    assert config["experts"] == ["copd", "cvd", "skin cancer"]
    assert [route["text"] for route in config["routes"]] == ["[COPD]", "[CVD]", "[SKIN_CANCER]"]
    assert config["expert_layers"] == [0, 1, 2, 3]
    assert config["expert_norms"] is True
    for file in saved.rglob("*.json"):
        assert "/tmp" not in file.read_text(), f"{file.name} names a folder of the machine"


def test_transformers_alone_loads_it(mixed: SentenceTransformer, saved: Path) -> None:
    config = AutoConfig.from_pretrained(saved)
    assert type(config).__name__ in type(AutoModel.from_config(config)).config_class.__name__
    model = AutoModel.from_pretrained(saved)
    features = mixed.tokenize(ROUTED)
    expected = mixed[0].auto_model(**features).last_hidden_state
    assert torch.equal(model(**features).last_hidden_state, expected)


def test_each_expert_has_a_file_of_its_own(mixed: SentenceTransformer, saved: Path) -> None:
    assert set(weights_of(saved)) == set(mixed[0].auto_model.state_dict())
    files = {file.name: set(load_file(file)) for file in saved.glob("model*.safetensors")}
    for number in range(3):
        assert all(f".experts.{number}." in key for key in files.pop(f"model-expert-00{number}.safetensors"))
    (shared,) = files.values()
    assert not any(".experts." in key for key in shared)


def test_a_smaller_model_leaves_no_expert_behind(mixed: SentenceTransformer, saved: Path) -> None:
    smaller = drop_route(mixed, "cvd")
    smaller.save(str(saved))
    assert sorted(file.name for file in saved.glob("model-expert-*")) == [
        "model-expert-000.safetensors",
        "model-expert-001.safetensors",
    ]
    vectors = [model.encode("lungs", prompt_name="copd") for model in (smaller, sentence_experts.load(saved))]
    assert np.array_equal(*vectors)


def test_worker_processes_give_the_same_vectors(
    bases: dict[str, SentenceTransformer],
    scatter: Callable[..., SentenceTransformer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The library starts them anew, which takes seconds of imports each.
    monkeypatch.setattr(torch.multiprocessing, "get_context", lambda method: fresh())
    mixed = scatter(sentence_experts.extend(bases["modernbert"], NAMES))
    texts = [text for text in ROUTED for _ in range(3)]
    pool = mixed.start_multi_process_pool(["cpu", "cpu"])
    try:
        parallel = mixed.encode(texts, pool=pool, chunk_size=4)
        prompted = mixed.encode(["heart", "lungs"], pool=pool, prompt_name="cvd")
        explicit = mixed.encode(["heart", "lungs"], pool=pool, expert_ids=[1, 0])
        old_way = mixed.encode_multi_process(["heart", "lungs"], pool, prompt_name="cvd")
    finally:
        mixed.stop_multi_process_pool(pool)
    assert np.abs(parallel - mixed.encode(texts)).max() < 1e-6
    assert np.abs(prompted - mixed.encode(["heart", "lungs"], prompt_name="cvd")).max() < 1e-6
    assert np.abs(old_way - prompted).max() < 1e-6
    assert np.abs(explicit - mixed.encode(["[CVD]heart", "[COPD]lungs"])).max() < 1e-6


@pytest.mark.parametrize("expert_ids", [[1, 0, 2], np.array([1, 0, 2]), torch.tensor([1, 0, 2])])
def test_expert_ids_for_each_text(mixed: SentenceTransformer, expert_ids: object) -> None:
    texts = ["the heart pumps", "lungs", "a much longer text about skin cancer and light"]
    expected = mixed.encode(["[CVD]the heart pumps", "[COPD]lungs", f"[SKIN_CANCER]{texts[2]}"])
    assert np.array_equal(mixed.encode(texts, expert_ids=expert_ids), expected)


def test_expert_ids_for_all_texts(mixed: SentenceTransformer) -> None:
    expected = mixed.encode(["[CVD]heart", "[CVD]lungs"])
    for one in (1, np.int64(1), torch.tensor(1)):
        assert np.array_equal(mixed.encode(["heart", "lungs"], expert_ids=one), expected)
    assert np.array_equal(mixed.encode("heart", expert_ids=1), mixed.encode("[CVD]heart"))
    assert np.array_equal(mixed.encode([("a", "b")], expert_ids=1), mixed.encode([("[CVD]a", "b")]))
    assert np.array_equal(mixed.encode(sentences=["heart"], expert_ids=1), mixed.encode(["[CVD]heart"]))


def test_expert_ids_decide_over_a_route_in_the_text(mixed: SentenceTransformer) -> None:
    vector = mixed.encode("[COPD]heart", expert_ids=1)
    assert np.array_equal(vector, mixed.encode("[CVD][COPD]heart"))
    assert not np.allclose(vector, mixed.encode("[COPD]heart"), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({"expert_ids": wrong}, r"for each of 2 texts.*0 \(copd\), 1 \(cvd\)")
            for wrong in ([1], [0, 1, 0], [0, 3], [0.0, 1.0], [True, False], "cvd")
        ),
        ({"expert_ids": 0, "prompt_name": "cvd"}, "prompt"),
    ],
)
def test_expert_ids_that_do_not_fit(
    mixed: SentenceTransformer, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        mixed.encode(["heart", "lungs"], **options)


def test_a_prompt_name_that_is_no_route_lists_the_routes(mixed: SentenceTransformer) -> None:
    for options in ({"prompt_name": "cancer"}, {"prompt_name": "cancer", "expert_ids": 0}):
        with pytest.raises(RouteError, match=r"'cancer'; known routes are copd .*skin cancer"):
            mixed.encode(["heart"], **options)


def test_the_default_route_is_for_texts_without_one(
    base: SentenceTransformer, scatter: Callable[..., SentenceTransformer]
) -> None:
    encoder = scatter(sentence_experts.extend(base, ["copd", "cvd"], default_route="cvd"))
    routed = encoder.encode(["[COPD]a text", "a text", "[CVD]a text"])
    for vector, name in zip(routed, ("copd", "cvd", "cvd"), strict=True):
        np.testing.assert_allclose(vector, encoder.encode("a text", prompt_name=name), atol=1e-6)
    assert np.abs(routed[0] - routed[1]).max() > 1e-3
    np.testing.assert_allclose(encoder.encode("[COPD]a text"), routed[0], atol=1e-6)


def test_default_route(base: SentenceTransformer, tmp_path: Path) -> None:
    encoder = sentence_experts.extend(base, ["copd", "cvd"], default_route="cvd")
    save(encoder, tmp_path / "model")
    for loaded in (SentenceTransformer(str(tmp_path / "model"), device="cpu"), encoder):
        expected = loaded.encode(["heart"], prompt_name="cvd")
        assert np.array_equal(loaded.encode(["heart"]), expected)
        assert np.array_equal(loaded.encode_query(["heart"]), expected)
        assert np.array_equal(loaded.encode_document(["heart"]), expected)
        with pytest.raises(RouteError):
            loaded.encode(["heart"], prompt="")
    by_name = encoder.encode(["heart"], prompt_name="copd")
    assert np.array_equal(encoder.encode(["heart"], expert_ids=0), by_name)


def test_load_knows_experts_and_routes(saved: Path) -> None:
    encoder = sentence_experts.load(saved, device="cpu")
    assert isinstance(encoder, sentence_experts.ExpertEncoder)
    assert encoder.experts == ("copd", "cvd", "skin cancer")
    assert [(route.name, route.expert) for route in encoder.routes] == [(n, i) for i, n in enumerate(NAMES)]
    total, active = encoder.parameter_counts()
    assert total == sum(parameter.numel() for parameter in encoder.parameters())
    assert active < total


def test_one_text_meets_as_many_parameters_as_the_base_has(base: SentenceTransformer) -> None:
    encoder = sentence_experts.extend(base, ["copd", "cvd"], route="prefix")
    assert encoder.parameter_counts()[1] == sum(parameter.numel() for parameter in base.parameters())


def test_save_replaces_models_only(base: SentenceTransformer, tmp_path: Path) -> None:
    encoder = sentence_experts.extend(base, ["copd"])
    for _ in range(2):
        save(encoder, tmp_path / "model")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other files"):
        save(encoder, tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"
    for weights in ("model.safetensors", "pytorch_model.bin"):  # they would be read in place of the model's
        (tmp_path / weights).mkdir()
        (tmp_path / weights / weights).write_bytes(b"another's")
        with pytest.raises(UsageError, match="in the way"):
            save(encoder, tmp_path / weights, overwrite=True)
    save(encoder, tmp_path / "mine", overwrite=True)
    assert sentence_experts.load(tmp_path / "mine").experts == ("copd",)  # type: ignore[union-attr]


def test_what_is_no_model_with_experts(base_folders: dict[str, Path], family: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no experts"):
        check_experts(sentence_experts.load(base_folders[family]))
    with pytest.raises(InputError, match=r"modules\.json"):
        sentence_experts.load(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        sentence_experts.load("no/such-model-anywhere")


def test_the_number_of_an_expert_is_not_its_head(mixed: SentenceTransformer) -> None:
    before = mixed.encode(["heart"], expert_ids=0)
    grown = sentence_experts.add_route(mixed, "aaa", kind="head", on="copd")
    with torch.no_grad():
        for name, weight in grown.named_parameters():
            if "head" in name:
                weight.normal_()
    assert np.array_equal(grown.encode(["heart"], expert_ids=0), before)
    assert not np.array_equal(grown.encode(["heart"], prompt_name="aaa"), before)

"""On a GPU: vectors, training, paged experts, language models and the server do as they do on a CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sentence_experts as se
from helpers.command_line import run
from helpers.killed_run import run_until_killed
from helpers.saved_weights import weights_of
from helpers.small_language_models import make_language_model
from helpers.small_training_tasks import make_task_encoder
from sentence_experts.encoding.encoder import cosines

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

TEXTS = [
    "rice yield in drought",
    "memory, sleep and the cortex " * 9,
    "glia",
    "maize root soil and rust " * 40,
]
SHORT = {"batch_size": 8, "max_steps": 12, "eval_steps": 4, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def real_experts(minilm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real base with two experts that differ, an adapter and a head."""
    model = se.extend(minilm, experts=["crops", "neuro"])
    generator = torch.Generator().manual_seed(0)
    model = se.add_route(
        se.add_route(model, "brief", kind="adapter", on="crops"), "mapped", kind="head", on="neuro"
    )
    for name, weight in model.cpu().named_parameters():
        if ".experts." in name or name.endswith(".up") or ".heads." in name:
            weight.data += 0.01 * torch.randn(weight.shape, generator=generator)
    folder = tmp_path_factory.mktemp("gpu") / "experts"
    model.save(str(folder))
    return folder


def routed_texts(model: Any) -> list[str]:
    """Each text with each route, all in one list."""
    return [route.text + text for text in TEXTS for route in model.routes]


def test_vectors_are_those_of_a_cpu(real_experts: Path) -> None:
    there, here = (se.load(real_experts, device=device) for device in ("cpu", "cuda"))
    texts = routed_texts(there)
    expected, found = (model.encode(texts, batch_size=5) for model in (there, here))
    assert np.abs(expected - found).max() < 1e-4
    rows = expected.reshape(len(TEXTS), -1, expected.shape[1])
    assert min(np.abs(rows[:, 0] - rows[:, route]).max() for route in range(1, rows.shape[1])) > 1e-3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_near(real_experts: Path, dtype: str) -> None:
    exact = se.load(real_experts, device="cpu")
    half = se.load(real_experts, device="cuda", dtype=dtype)
    texts = routed_texts(exact)
    assert cosines(exact.encode(texts), half.encode(texts).astype("float32")).min() > 0.999


@pytest.mark.parametrize("settings", [{"max_resident_experts": 1}, {"routes": ["crops", "neuro"]}])
def test_experts_that_wait_elsewhere_give_the_same_vectors(real_experts: Path, settings: dict) -> None:
    loaded = se.load(real_experts, device="cuda")
    part = se.load(real_experts, device="cuda", **settings)
    for route in ("crops", "neuro", "crops"):
        assert np.array_equal(part.encode(TEXTS, prompt_name=route), loaded.encode(TEXTS, prompt_name=route))
    loaded.use_routes(["neuro"], idle="cpu")
    assert np.array_equal(part.encode(TEXTS, prompt_name="neuro"), loaded.encode(TEXTS, prompt_name="neuro"))


@pytest.mark.parametrize(
    "settings",
    [{}, {"bf16": True}, {"gradient_checkpointing": True}, {"cache_mini_batch": 4}, {"lora_rank": 2}],
)
def test_training_learns_and_is_saved(
    experts_model: Path, pairs_folder: Path, tmp_path: Path, settings: dict
) -> None:
    result = se.train(str(experts_model), pairs_folder, out=tmp_path / "run", **SHORT, **settings)
    figures = [float(row["eval_validation_mean"]) for row in result.history if "eval_validation_mean" in row]
    assert max(figures) > figures[0]
    saved = se.load(tmp_path / "run" / "model", device="cpu")
    again = se.load(tmp_path / "run" / "model", device="cuda")
    texts = [route.text + text for text in TEXTS for route in saved.routes]
    assert np.abs(saved.encode(texts) - again.encode(texts)).max() < 1e-4


def test_training_takes_the_steps_of_a_cpu(experts_model: Path, pairs_folder: Path, tmp_path: Path) -> None:
    """Without dropout, a few steps lead to nearly the same weights."""
    model = shutil.copytree(experts_model, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (model / "config.json").write_text(json.dumps(config))
    (model / "made_from.json").unlink(missing_ok=True)
    settings = {**SHORT, "keep": "last"}
    code = f"import sentence_experts as se, sys; se.train(*sys.argv[1:3], out=sys.argv[3], **{settings})"
    places = [str(model), str(pairs_folder), str(tmp_path / "cpu")]
    without = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", code, *places], env=without, check=True)
    result = se.train(str(model), pairs_folder, out=tmp_path / "gpu", **settings)
    assert result.model.device.type == "cuda"
    before, there, here = (weights_of(tmp_path / run) for run in ("model", "cpu/model", "gpu/model"))
    moved = max(float((there[name] - before[name]).abs().max()) for name in before)
    apart = max(float((there[name] - here[name]).abs().max()) for name in before)
    assert apart < 0.1 * moved, (apart, moved)


def test_one_expert_is_trained_and_the_others_stay(
    experts_model: Path, pairs_folder: Path, tmp_path: Path
) -> None:
    se.train(str(experts_model), pairs_folder, out=tmp_path / "run", only_expert="crops", **SHORT)
    before, after = weights_of(experts_model), weights_of(tmp_path / "run" / "model")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    loaded, trained = (
        se.load(folder, device="cuda") for folder in (experts_model, tmp_path / "run" / "model")
    )
    others = {"prompt_name": "neuro"}
    assert np.array_equal(loaded.encode(TEXTS, **others), trained.encode(TEXTS, **others))


def _train_in_child(model: str, pairs: Path, out: Path) -> None:
    se.train(model, pairs, out=out, **SHORT)


def test_a_killed_run_goes_on(experts_model: Path, pairs_folder: Path, tmp_path: Path) -> None:
    _train_in_child(str(experts_model), pairs_folder, tmp_path / "whole")
    out = tmp_path / "killed"
    run_until_killed(
        _train_in_child, (str(experts_model), pairs_folder, out), out, "checkpoints/checkpoint-*"
    )
    _train_in_child(str(experts_model), pairs_folder, out)
    whole, resumed = (weights_of(run / "model") for run in (tmp_path / "whole", out))
    assert max(float((whole[name] - resumed[name]).abs().max()) for name in whole) < 1e-4


def test_measuring_leaves_the_random_state(experts_model: Path, pairs_folder: Path, tmp_path: Path) -> None:
    for steps in (3, 4):
        settings = {**SHORT, "eval_steps": steps, "keep": "last"}
        se.train(str(experts_model), pairs_folder, out=tmp_path / str(steps), **settings)
    one, other = (weights_of(tmp_path / str(steps) / "model") for steps in (3, 4))
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-4


def test_kinds_are_learned_from_labels(plain_model: Path, tmp_path: Path) -> None:
    import pandas as pd

    words = {
        "crop": ["rice", "wheat", "maize", "millet", "drought"],
        "brain": ["neuron", "cortex", "memory", "sleep", "glia"],
    }
    rows = [
        {"text": f"{word} {other} study {number}", "field": field}
        for field, some in words.items()
        for number, word in enumerate(some * 8)
        for other in some
    ]
    for kind in ("head", "adapter", "expert"):
        fitted = se.fit(
            plain_model, pd.DataFrame(rows), text="text", by="field", kind=kind, out=tmp_path / kind
        )
        model = se.load(tmp_path / kind, device="cuda")
        assert model.encode(["rice"], prompt_name="field").shape == (1, 32)
        assert len(fitted.to_pandas()), kind


@pytest.mark.parametrize("options", [{}, {"router": "learned"}, {"router": "token", "top_k": 2}])
def test_task_experts(minilm: str, tmp_path: Path, options: dict) -> None:
    folder = make_task_encoder(tmp_path / "tasks", minilm, **options)
    there, here = (se.load(folder, device=device) for device in ("cpu", "cuda"))
    texts = [prompt + text for prompt in there.prompts.values() for text in TEXTS]
    assert np.abs(there.encode(texts) - here.encode(texts)).max() < 1e-4


@pytest.mark.parametrize("family", ["olmoe", "qwen2_moe", "mixtral"])
def test_language_models(tmp_path: Path, family: str) -> None:
    folder = make_language_model(tmp_path / family, family)
    texts = ["rice grows in the rain", "sleep, memory and the cortex: neurons fire in sleep", "drought"]
    for parts in ("hs", "rw", "concat"):
        there, here = (se.MoeEmbedder(str(folder), parts=parts, device=device) for device in ("cpu", "cuda"))
        expected, found = there.encode(texts), here.encode(texts)
        assert np.abs(expected - found).max() < 1e-3 * np.abs(expected).max()


def test_the_server_answers_as_encode(real_experts: Path) -> None:
    from starlette.testclient import TestClient

    model = se.load(real_experts, device="cuda")
    app = se.create_app({"m": model}, watch=False)
    with TestClient(app, base_url="http://localhost") as client:
        for route in model.routes:
            sent = {"model": f"m:{route.name}", "input": TEXTS}
            answer = client.post("/v1/embeddings", json=sent).json()
            found = np.array([row["embedding"] for row in answer["data"]])
            assert np.abs(found - model.encode(TEXTS, prompt_name=route.name)).max() < 1e-4


def test_commands_use_the_gpu(real_experts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    common = ["encode", real_experts, "--input", tmp_path / "texts.txt", "--route", "neuro"]
    torch.cuda.reset_peak_memory_stats()
    assert run(capsys, *common, "--out", tmp_path / "gpu.npy")[0] == 0
    assert torch.cuda.max_memory_allocated() > 80e6
    assert run(capsys, *common, "--out", tmp_path / "cpu.npy", "--device", "cpu")[0] == 0
    one, other = (np.load(tmp_path / f"{device}.npy") for device in ("gpu", "cpu"))
    assert np.abs(one - other).max() < 1e-4
    assert run(capsys, *common, "--out", tmp_path / "half.npy", "--dtype", "bfloat16")[0] == 0
    assert cosines(other, np.load(tmp_path / "half.npy").astype("float32")).min() > 0.999

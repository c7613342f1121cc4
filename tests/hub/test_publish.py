"""Publishing a model: what is shown, what a hub gets, and what is fetched from there again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard, constants
from sentence_transformers import SentenceTransformer

import sentence_experts
from helpers.hub import running_hub
from helpers.samples import make_pairs_folder, make_tiny_encoder
from sentence_experts.cli.main import main
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.hub.config import PublishConfig
from sentence_experts.hub.publish import publish

TEXTS = ["Drought in rice", "Sleep and memory"]


@pytest.fixture(scope="module")
def model(minilm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("publish") / "model", minilm, ("crops", "neuro"))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pairs_folder(tmp_path_factory.mktemp("publish-pairs") / "pairs")


@pytest.fixture(scope="module")
def evaluation(model: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("publish-results") / "results"
    sentence_experts.evaluate(str(model), pairs, out=out, bootstrap=20)
    return out


def test_a_dry_run_asks_nobody_and_shows_all(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with running_hub(tmp_path, monkeypatch) as hub, pytest.raises(SystemExit) as ended:
        main(["publish", str(model), "--repo", "me/model"])
    assert ended.value.code == 0
    assert not hub.posted
    assert not hub.fetched
    shown = capsys.readouterr().out
    digest = hashlib.sha256((model / "model-expert-001.safetensors").read_bytes()).hexdigest()
    assert digest in shown
    assert "nothing was uploaded" in shown
    assert 'SentenceTransformer("me/model")' in shown


def test_the_card_has_routes_base_data_results_and_limits(
    model: Path, pairs: Path, evaluation: Path, tmp_path: Path
) -> None:
    done = publish(
        model,
        "me/model",
        evaluation=evaluation,
        data=pairs,
        dense=["all"],
        base="me/base",
        licence="apache-2.0",
        out=tmp_path / "out",
    )
    measured = sentence_experts.evaluate(str(model), pairs, out=evaluation, bootstrap=20).models[0]
    card = ModelCard(done.card)
    (result,) = [each for each in card.data.eval_results or [] if each.metric_type == "roc_auc"]
    assert result.metric_value == pytest.approx(measured.pair_weighted_mean.metrics["roc_auc"])
    interval = measured.pair_weighted_mean.intervals["roc_auc"]
    assert interval is not None
    assert f"({interval.low:.3f} to {interval.high:.3f})" in (result.metric_name or "")
    assert (card.data.base_model, card.data.license) == ("me/base", "apache-2.0")
    for words in ("[CROPS]", "route/neuro", "48 training pairs of crops, neuro", "## Limits"):
        assert words in card.text
    assert "path/to/this/folder" not in card.text
    for file in done.files:
        content = (tmp_path / "out" / file.path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)


def test_dense_models_give_the_vectors_of_their_routes(model: Path, tmp_path: Path) -> None:
    publish(model, "me/model", dense=["neuro"], out=tmp_path / "out")
    dense = SentenceTransformer(str(tmp_path / "out" / "route" / "neuro"), device="cpu")
    whole = sentence_experts.load(model, device="cpu")
    np.testing.assert_allclose(dense.encode(TEXTS), whole.encode(TEXTS, prompt_name="neuro"), atol=1e-6)
    assert not (tmp_path / "out" / "route" / "crops").exists()


def test_an_upload_is_loaded_again_and_only_what_is_needed_is_fetched(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "model-expert-007.safetensors").write_bytes(b"of a dropped expert")
    with running_hub(repository, monkeypatch) as hub:
        done = publish(model, "me/model", dense=["all"], upload=True, private=True)
        assert done.commit is not None
        create = next(content for path, content in hub.posted if path.endswith("/repos/create"))
        assert create["visibility"] == "private"
        commit = next(content for path, content in hub.posted if path == "commit")
        assert ("deletedFile", "model-expert-007.safetensors") in commit
        assert {path for kind, path in commit if kind == "lfsFile"} >= {
            "model-expert-000.safetensors",
            "route/crops/model.safetensors",
        }
        assert "made_from.json" not in {path for _, path in commit}
        part = sentence_experts.load("me/model", routes=["neuro"], cache_folder=str(tmp_path / "cache"))
        weights = {name for name in hub.fetched if name.endswith(".safetensors")}
        assert weights == {"model-shared.safetensors", "model-expert-001.safetensors"}
        assert not any(name.startswith("route/") for name in hub.fetched)
        hub.fetched.clear()
        sentence_experts.load("me/model", cache_folder=str(tmp_path / "other-cache"))
        assert not any(name.startswith("route/") for name in hub.fetched)
    whole = sentence_experts.load(model, device="cpu")
    assert (part.encode(TEXTS, prompt_name="neuro") == whole.encode(TEXTS, prompt_name="neuro")).all()


def test_a_folder_that_was_looked_at_is_uploaded_as_it_is(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    shown = publish(model, "me/model", out=tmp_path / "out")
    with running_hub(repository, monkeypatch):
        publish(model, "me/model", out=tmp_path / "out", upload=True)
    for file in shown.files:
        assert hashlib.sha256((repository / file.path).read_bytes()).hexdigest() == file.sha256


def test_what_cannot_be_published(model: Path, evaluation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="`repo`"):
        publish(model, "name")
    with pytest.raises(RouteError, match="no route"):
        publish(model, "me/model", dense=["skin"])
    with pytest.raises(InputError, match=r"no model is called 'other'.*`label`: model"):
        publish(model, "me/model", PublishConfig(label="other"), evaluation=evaluation)
    with pytest.raises(InputError, match=r"evaluation\.json"):
        publish(model, "me/model", evaluation=model)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="me/model: the hub refused it"):
        publish(model, "me/model", upload=True)

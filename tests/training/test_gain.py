"""The gain that a run states over the model it began with, whatever its validation is like."""

from __future__ import annotations

import logging
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from helpers.samples import make_pairs_folder
from sentence_experts.errors import InputError
from sentence_experts.models.files.fingerprint import folder_fingerprint
from sentence_experts.models.loading import load
from sentence_experts.models.sources import notes_of
from sentence_experts.pairs.dataset import SPLITS, Pairs
from sentence_experts.training import run as run_module
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.run import train
from sentence_experts.training.validation import Validator

SHORT = TrainConfig(batch_size=8, max_steps=12, eval_steps=2, learning_rate=1e-3, patience=3)


@pytest.fixture
def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation whose figure falls from one time to the next."""
    times = count()
    monkeypatch.setattr(
        Validator, "__call__", lambda *args, **kwargs: {"validation_mean": 0.9 - next(times) / 50}
    )


@pytest.mark.usefixtures("falling")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ({"loss": "learned_temperature"}, {"lora_rank": 2})
        ),
    ],
)
def test_a_run_that_only_loses_gives_back_the_model_it_began_with(
    pairs: Pairs, experts_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict
) -> None:
    before = load(experts_model, device="cpu").encode(["rice"], prompt_name="crops")
    with caplog.at_level(logging.WARNING):
        result = train(str(experts_model), pairs, TrainConfig.of(SHORT, **settings), tmp_path / "run")
    assert (result.validation, result.start, result.kept_step, result.steps) == (0.9, 0.9, 0, 6)
    assert "UNTRAINED: identical to the base: no step was better than the model before" in caplog.text
    assert "UNTRAINED: identical to the base" in repr(result)
    assert "no step was better than the 0.9000 before training" in repr(result)
    assert [entry["step"] for entry in result.history] == [0, 2, 4, 6]
    for model in (result.model, load(tmp_path / "run" / "model", device="cpu")):
        assert np.abs(model.encode(["rice"], prompt_name="crops") - before).max() < 1e-6
    assert "UNTRAINED: identical to the base." in (tmp_path / "run/model/README.md").read_text()
    if not settings:
        assert folder_fingerprint(tmp_path / "run" / "model") == folder_fingerprint(experts_model)
    assert notes_of(result.model) == notes_of(tmp_path / "run" / "model") == {"untrained": True}
    again = train(str(experts_model), pairs, TrainConfig.of(SHORT, **settings), tmp_path / "run")
    assert (again.kept_step, again.start, again.history) == (0, 0.9, result.history)


@pytest.mark.usefixtures("falling")
def test_a_run_killed_after_its_last_step_trains_no_further(
    pairs: Pairs, experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "take_best", stop)
        with pytest.raises(KeyboardInterrupt):
            train(str(experts_model), pairs, SHORT, out)
    assert train(str(experts_model), pairs, SHORT, out).steps == 6


@pytest.mark.slow
@pytest.mark.usefixtures("falling")
def test_the_last_step_is_kept_with_that_setting(
    pairs: Pairs, experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    last = TrainConfig.of(SHORT, keep="last")
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "take_best", stop)
        with pytest.raises(KeyboardInterrupt):  # after the last step, of which there is a checkpoint
            train(str(experts_model), pairs, last, tmp_path / "run")
    result = train(str(experts_model), pairs, last, tmp_path / "run")
    assert (result.kept_step, result.steps, len(result.history)) == (12, 12, 7)
    assert result.validation == result.history[-1]["eval_validation_mean"]
    assert f"{result.start - result.validation:.4f} below the 0.9000 before training" in result.summary
    assert "at step 12 of 12: " in (tmp_path / "run/model/README.md").read_text()
    whole = train(str(experts_model), pairs, last).model.state_dict()
    kept = load(tmp_path / "run" / "model", device="cpu").state_dict()
    assert all(torch.equal(weight, whole[name].cpu()) for name, weight in kept.items())


def test_the_last_step_needs_no_validation_pairs(pairs: Pairs, experts_model: Path) -> None:
    only = Pairs.from_tables(train=pairs.split("train"))
    with pytest.raises(InputError, match=r"no validation pairs to choose the best step by: .*`keep=last`"):
        train(str(experts_model), only, SHORT, max_steps=2)
    result = train(str(experts_model), only, SHORT, max_steps=2, keep="last")
    assert (result.kept_step, result.summary) == (2, "step 2 of 2, not validated")


def one_kind(tmp_path: Path, domains: list[str]) -> Pairs:
    """Pairs whose validation split has unlinked pairs only, in these domains."""
    whole = Pairs.open(make_pairs_folder(tmp_path / "pairs", pairs=32))
    splits = {name: whole.split(name) for name in SPLITS}
    table = splits["validation"]
    rows = zip(table["domain"].to_pylist(), table["label"].to_pylist(), strict=True)
    keep = pa.array([label == 0 or domain not in domains for domain, label in rows])
    return Pairs.in_memory({**splits, "validation": table.filter(keep)}, whole.known_links(), {})


def test_a_validation_of_one_kind_of_pairs_keeps_the_last_step(
    experts_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = one_kind(tmp_path, ["crops", "neuro"])
    with caplog.at_level(logging.WARNING):
        result = train(str(experts_model), pairs, SHORT, tmp_path / "run")
    assert (result.validation, result.kept_step, result.steps) == (None, 12, 12)
    assert "the validation pairs of crops, neuro are all linked or all unlinked" in caplog.text
    assert "the last one is kept" in caplog.text
    trained = load(tmp_path / "run" / "model", device="cpu").state_dict()
    assert any(
        not torch.equal(weight, trained[name]) for name, weight in load(experts_model).state_dict().items()
    )


def test_a_domain_of_one_kind_of_pairs_is_named(
    experts_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        result = train(str(experts_model), one_kind(tmp_path, ["neuro"]), SHORT)
    assert "the validation pairs of neuro are all linked or all unlinked" in caplog.text
    assert all(
        entry["eval_validation_mean"] == entry["eval_validation_crops/roc_auc"] for entry in result.history
    )


@pytest.mark.parametrize("keep", [False, True])
def test_checkpoints_of_a_finished_run_stay_only_with_that_setting(
    pairs: Pairs, experts_model: Path, tmp_path: Path, keep: bool
) -> None:
    config = TrainConfig.of(SHORT, max_steps=2, keep_checkpoints=keep)
    train(str(experts_model), pairs, config, tmp_path / "run")
    assert bool(list(tmp_path.glob("run/**/optimizer.pt"))) is keep
    other = TrainConfig.of(config, keep_checkpoints=not keep)
    assert train(str(experts_model), pairs, other, tmp_path / "run").steps == 2
    assert bool(list(tmp_path.glob("run/**/optimizer.pt"))) is keep  # nor does another call remove them


def test_a_model_notes_the_text_it_was_trained_on(pairs: Pairs, experts_model: Path, tmp_path: Path) -> None:
    of_titles = Pairs.in_memory(
        {name: pairs.split(name) for name in SPLITS},
        pairs.known_links(),
        {"settings": {"unit": "title", "relation": "co-citation", "split": "paper"}},
    )
    result = train(str(experts_model), of_titles, SHORT, tmp_path / "run", keep="last")
    copy = load(tmp_path / "run" / "model", device="cpu")
    copy.save(str(tmp_path / "copy"))
    for model in (result.model, tmp_path / "run" / "model", copy, tmp_path / "copy"):
        assert notes_of(model) == {"unit": "title"}
    assert notes_of(experts_model) == {}

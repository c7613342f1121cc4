"""A search draws the same settings whatever interrupts it, and goes on after a failed trial."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.killed_run import run_until_killed
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import InUseError, NoSpaceError, read_json
from sentence_experts.training import tune as tune_module
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.result import TrainResult
from sentence_experts.training.run import train
from sentence_experts.training.tune import TuneResult, read_space, tune

SHARED: dict[str, Any] = {"learning_rate": 1e-3, "eval_steps": 2, "max_steps": 4, "fraction": 0.5}
SPACE: dict[str, Any] = {
    "batch_size": {"type": "int", "low": 4, "high": 8},
    "warmup": {"type": "float", "low": 0.0, "high": 0.5},
}


@pytest.fixture(scope="module")
def result(pairs: Pairs, experts_model: Path, tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    out = tmp_path_factory.mktemp("search") / "whole"
    return tune(experts_model, pairs, out=out, space=SPACE, trials=3, **SHARED)


def test_every_trial_is_a_run_with_the_settings_it_drew(result: TuneResult) -> None:
    assert [trial.number for trial in result.trials] == [0, 1, 2]
    assert len({trial.settings["warmup"] for trial in result.trials}) == 3
    for trial in result.trials:
        run = read_json(result.out / "trials" / f"{trial.number:03}" / "run.json")
        assert run["config"] == TrainConfig.of(None, **SHARED, **trial.settings).model_dump(
            mode="json", exclude={"keep_checkpoints"}
        )
        assert run["validation"] == trial.best
    assert list(result.to_pandas().columns) == ["trial", "batch_size", "warmup", "steps", "best", "failure"]


def test_best_settings_are_a_config_for_train(result: TuneResult) -> None:
    best = max(result.trials, key=lambda trial: trial.best or 0.0)
    assert result.best == best
    # The trials saw a part of the pairs; the model is trained on all of them.
    expected = TrainConfig.of(None, **{**SHARED, **best.settings, "fraction": 1.0})
    assert TrainConfig.read(result.out / "best.yaml") == expected == result.config


def _search_in_child(model: Path, pairs: Path, out: Path) -> None:
    tune(model, pairs, out=out, space=SPACE, trials=3, **SHARED)


@pytest.mark.slow
def test_killed_search_continues_as_if_nothing_had_happened(
    result: TuneResult, pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    # The second trial has a checkpoint, and neither a result nor a record.
    checkpoint = "trials/001/checkpoints/checkpoint-2"
    run_until_killed(_search_in_child, (experts_model, pairs.path, out), out, checkpoint)
    first = (out / "trials" / "000" / "run.json").stat().st_mtime_ns
    with pytest.raises(UsageError, match=r"begun with another seed"):
        tune(experts_model, pairs, out=out, space=SPACE, trials=3, **{**SHARED, "seed": 8})
    again = tune(experts_model, pairs, out=out, space=SPACE, trials=3, **SHARED)
    assert (out / "trials" / "000" / "run.json").stat().st_mtime_ns == first, "a finished trial is kept"
    assert again.trials == result.trials
    assert (out / "best.yaml").read_text() == (result.out / "best.yaml").read_text()


@pytest.mark.slow
def test_trials_can_be_added(result: TuneResult, pairs: Pairs, experts_model: Path) -> None:
    more = tune(experts_model, pairs, out=result.out, space=SPACE, trials=4, **SHARED)
    fewer = tune(experts_model, pairs, out=result.out, space=SPACE, trials=1, **SHARED)
    assert (fewer.trials, fewer.best) == (more.trials, more.best)
    assert more.trials[:3] == result.trials
    assert len(more.trials) == 4


@pytest.mark.slow
def test_a_finished_trial_that_was_changed_is_kept(
    result: TuneResult, pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "search"
    shutil.copytree(result.out, out)
    trial = out / "trials" / f"{result.best.number:03}"
    (trial / "notes.txt").write_text("mine")
    for name in ("model/README.md", "run.json", "config.yaml"):
        whole = (trial / name).read_bytes()
        (trial / name).write_bytes(whole + b"\n# my remark\n")
        before = {file: file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file()}
        for trials in (3, 4):
            with pytest.raises(InputError, match=rf"{name}.*has changed.*remove {trial} to make this trial"):
                tune(experts_model, pairs, out=out, space=SPACE, trials=trials, **SHARED)
        assert {file: file.read_bytes() for file in before} == before
        (trial / name).write_bytes(whole)
    again = tune(experts_model, pairs, out=out, space=SPACE, trials=3, **SHARED)
    assert (again.best, (trial / "notes.txt").read_text()) == (result.best, "mine")


def test_notes_beside_trials_stay(
    result: TuneResult, pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "search"
    shutil.copytree(result.out, out)
    mine = [out / "trials" / name for name in ("notes.txt", "000/notes.txt", "002/model/notes.txt", "old/x")]
    for file in mine:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    again = tune(
        experts_model, pairs, out=out, space=SPACE, trials=1, overwrite=True, **{**SHARED, "seed": 8}
    )
    assert len(again.trials) == 1
    assert [file.read_text() for file in mine] == ["mine"] * 4
    assert [file.parent.name for file in sorted(out.glob("trials/*/run.json"))] == ["000"]


@pytest.mark.slow
def test_failed_trial_is_recorded_and_the_search_continues(
    pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    shared = {**SHARED, "batch_size": 8}
    del shared["learning_rate"]
    rates: dict[str, Any] = {"learning_rate": {"type": "categorical", "choices": [1e-3, 1e38]}}
    settings = {**shared, "space": rates, "trials": 3, "seed": 2, "out": tmp_path / "wild"}
    found = tune(experts_model, pairs, **settings)
    assert {trial.settings["learning_rate"]: trial.best is None for trial in found.trials} == {
        1e-3: False,
        1e38: True,
    }
    failed = next(trial for trial in found.trials if trial.best is None)
    assert "learning_rate" in (failed.failure or "")
    assert found.config.learning_rate == 1e-3
    assert tune(experts_model, pairs, **settings).trials == found.trials
    hopeless: dict[str, Any] = {"learning_rate": {"type": "categorical", "choices": [1e38]}}
    with pytest.raises(SentenceExpertsError, match="all 1 trials failed"):
        tune(experts_model, pairs, space=hopeless, trials=1, **shared)


@pytest.mark.slow
def test_trials_that_learn_nothing_are_told(
    pairs: Pairs, experts_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rates: dict[str, Any] = {"learning_rate": {"type": "categorical", "choices": [1.0]}}
    shared = {name: value for name, value in SHARED.items() if name != "learning_rate"}
    tune(experts_model, pairs, space=rates, trials=1, **shared | {"batch_size": 8})
    assert "no trial was better than the model before training" in caplog.text
    caplog.clear()
    tune(experts_model, pairs, space=SPACE, trials=1, **SHARED)
    assert "no trial was better" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NoSpaceError, InUseError])
def test_what_no_setting_causes_fails_none(
    pairs: Pairs, experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """A full disk, or another process that writes a trial."""

    def fail(*given: Any, out: Path, **settings: Any) -> None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "checkpoint").touch()
        raise kind("not now")

    with monkeypatch.context() as patched:
        patched.setattr(tune_module, "train", fail)
        with pytest.raises(kind):
            tune(experts_model, pairs, out=tmp_path / "search", space=SPACE, trials=1, **SHARED)
    assert [*(tmp_path / "search").rglob("checkpoint")]
    shutil.rmtree(tmp_path / "search" / "trials")
    found = tune(experts_model, pairs, out=tmp_path / "search", space=SPACE, trials=1, **SHARED)
    assert [trial.failure for trial in found.trials] == [None]


def test_another_search_or_folder_is_refused(
    result: TuneResult, pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    for change in ({"seed": 9}, {"fraction": 0.6}, {"space": {"warmup": SPACE["warmup"]}}):
        settings = {**SHARED, "space": SPACE, "out": result.out, **change}
        with pytest.raises(UsageError, match="another"):
            tune(experts_model, pairs, **settings)
    with pytest.raises(
        UsageError, match=r"trials/000: this trial drew other values .* in another order.* or remove "
    ):
        tune(experts_model, pairs, out=result.out, space=dict(reversed(SPACE.items())), **SHARED)
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(UsageError, match=r"holds other files \(thesis\.txt\)"):
        tune(experts_model, pairs, out=tmp_path, space=SPACE, **SHARED)
    with pytest.raises(UsageError, match="`trials`"):
        tune(experts_model, pairs, out=tmp_path / "new", space=SPACE, **{**SHARED, "trials": 0})
    assert not (tmp_path / "new").exists()


SPACE_FILE = """
batch_size: {type: int, low: 5, high: 20}
learning_rate: {type: float, low: 1e-6, high: 1.0e-4, log: true}
scheduler: {type: categorical, choices: [cosine, one_cycle]}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "space.yaml"
    file.write_text(text)
    return file


def test_values_are_drawn_as_the_file_says(tmp_path: Path) -> None:
    space = read_space(written(tmp_path, SPACE_FILE), TrainConfig())
    assert list(space) == ["batch_size", "learning_rate", "scheduler"]
    integers, floats, categories = space.values()
    random = np.random.default_rng(0)
    assert {integers.draw(random) for _ in range(300)} == set(range(5, 21))
    drawn = [floats.draw(random) for _ in range(300)]
    assert 1e-6 <= min(drawn) < 1e-5 < np.median(drawn) * 3 < max(drawn) <= 1e-4
    assert {categories.draw(random) for _ in range(30)} == {"cosine", "one_cycle"}


def test_a_setting_that_another_one_overrides_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "epochs: {type: int, low: 1, high: 2}\nbatch_size: {type: int, low: 5, high: 20}"
    assert list(read_space(None, TrainConfig(max_steps=3))) == ["batch_size", "warmup"]
    assert not caplog.records
    assert list(read_space(written(tmp_path, text), TrainConfig(max_steps=3))) == ["batch_size"]
    assert "epochs: not searched, as `max_steps` is given" in caplog.text


def test_default_space_is_that_of_the_preprint() -> None:
    space = read_space(None, TrainConfig())
    assert list(space) == ["batch_size", "warmup", "epochs"]
    assert (space["batch_size"].low, space["batch_size"].high) == (5, 20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no settings; give lines"),
        ("batch_size: {low: 5, high: 20}", "batch_size: .*type"),
        ("batch_size: {type: int, low: 5}", "batch_size: .*high"),
        ("batch_size: {type: int, low: 20, high: 5}", "batch_size: .*low <= high"),
        ("batch_size: {type: int, low: 1, high: 20}", r"batch_size: .*\(got 1\)"),
        ("batch: {type: int, low: 5, high: 20}", "batch: no such setting; did you mean batches"),
        ("scheduler: {type: categorical, choices: [cosine, square]}", "scheduler: .*'square'"),
        ("epochs: {type: int, low: 5, high: .inf}", "epochs: .*finite numbers"),
        ("epochs: {type: int, low: 1.5, high: 3.9}", "epochs: .*whole numbers"),
        ("epochs: {type: categorical, choices: [1, 2], high: 3}", "epochs: .*choices alone"),
        ("epochs: {type: float, low: 1, high: 3, choices: [1, 2]}", "epochs: .*categorical"),
        ("pair_metric: {type: categorical, choices: [f1_max, roc_auc]}", "pair_metric: .*cannot be compared"),
    ],
)
def test_a_bad_space_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_space(written(tmp_path, text), TrainConfig())
    assert "space.yaml" in str(refused.value)


def test_given_settings_are_not_searched() -> None:
    assert list(read_space(None, TrainConfig(batch_size=8, max_steps=9))) == ["warmup"]
    with pytest.raises(UsageError, match="nothing to search"):
        read_space(None, TrainConfig(batch_size=8, warmup=0.1, max_steps=9))


def test_a_model_that_is_replaced_during_a_search_fails_no_setting(
    pairs: Pairs, experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = shutil.copytree(experts_model, tmp_path / "model"), tmp_path / "search"

    def replaces(*given: Any, **more: Any) -> TrainResult:
        if more["out"].name == "001":
            config = model / "config.json"
            config.write_text(config.read_text() + "\n")
            (more["out"] / "checkpoints").mkdir(parents=True)
            raise InputError("the tokenizer does not fit")
        return train(*given, **more)

    monkeypatch.setattr(tune_module, "train", replaces)
    with pytest.raises(InputError, match="its model changed while it was read"):
        tune(model, pairs, out=out, space=SPACE, trials=3, **SHARED)
    assert (out / "trials" / "001" / "checkpoints").is_dir()
    assert not (out / "best.yaml").exists()

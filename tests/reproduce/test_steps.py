"""A step is done if the same call made its result from the same inputs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sentence_experts.errors import UsageError
from sentence_experts.reproduce.steps import FinishedSteps, Step, run_steps
from sentence_experts.storage import output


@pytest.fixture
def steps(tmp_path: Path) -> list[Step]:
    """A corpus that the user brings -> pairs -> a trained model -> an evaluation."""
    corpus, pairs, run = tmp_path / "papers.parquet", tmp_path / "pairs.json", tmp_path / "run" / "run.json"
    corpus.write_text("articles")
    return [
        Made("compile_pairs", {}, pairs, made_from=(corpus,)),
        Made("train", {"out": run.parent}, run, made_from=(pairs,)),
        Made("evaluate", {}, tmp_path / "evaluation.json", made_from=(run,), can_be_replaced=True),
    ]


def run_all(steps: list[Step], finished: FinishedSteps) -> list[str]:
    """Run what is not done; each step writes down what it was made from. Gives the commands that ran."""
    ran = []
    for step in steps:
        if not finished.is_done(step):
            ran.append(step.call)
            finished.run(step)
            finished.finish(step)
    return ran


class Made(Step):
    """A step that writes down what it was made from."""

    def run(self, overwrite: bool = False) -> None:
        make(self, overwrite)


def make(step: Step, overwrite: bool = False) -> None:
    text = f"{step} of {[file.read_text() for file in step.made_from]}"
    if "out" not in step.arguments:
        step.makes.write_text(text)
        return
    names = ["run.json", "checkpoint"]
    with output(step.makes.parent, "run", names=names, grows=True, overwrite=overwrite) as place:
        place.begin({"text": text})
        (place.path / "run.json").write_text(text)
        place.finish("run.json")


def interrupted(step: Step) -> None:
    """Leave what a killed training of the step leaves, which was to replace a finished one: a checkpoint."""
    text = f"{step} of {[file.read_text() for file in step.made_from]}"
    names = ["run.json", "checkpoint"]
    with output(step.makes.parent, "run", names=names, grows=True, overwrite=True) as place:
        place.begin({"text": text})
        (place.path / "checkpoint").touch()


def test_results_of_changed_inputs_are_made_again(steps: list[Step], tmp_path: Path) -> None:
    finished = FinishedSteps(tmp_path / "steps.json")
    assert run_all(steps, finished) == ["compile_pairs", "train", "evaluate"]
    assert run_all(steps, finished) == []
    checkpoint = steps[1].makes.parent / "checkpoint"
    checkpoint.touch()
    steps[0].made_from[0].write_text("other articles")
    # Another recipe makes the pairs anew; this one finds its model out of date all the same.
    assert run_all(steps[:1], FinishedSteps(tmp_path / "steps.json")) == ["compile_pairs"]
    assert run_all(steps, finished) == ["train", "evaluate"]
    assert not checkpoint.exists()
    assert run_all(steps, finished) == []


def test_an_equal_result_made_again_changes_nothing_else(steps: list[Step], tmp_path: Path) -> None:
    finished = FinishedSteps(tmp_path / "steps.json")
    run_all(steps, finished)
    steps[0].makes.unlink()
    assert run_all(steps, finished) == ["compile_pairs"]
    shutil.rmtree(steps[1].makes.parent)
    assert run_all(steps, finished) == ["train"]


def test_an_interrupted_step_is_not_done_and_can_continue(steps: list[Step], tmp_path: Path) -> None:
    finished = FinishedSteps(tmp_path / "steps.json")
    run_all(steps, finished)
    # Replaced by an evaluation of other settings, which is interrupted before it is noted.
    other = replace(steps[2], settings={"bootstrap": 0})
    finished.run(other)
    assert not finished.is_done(steps[2])

    steps[0].made_from[0].write_text("other articles")
    run_all(steps[:1], finished)
    interrupted(steps[1])
    assert run_all(steps, finished) == ["train", "evaluate"]
    assert (steps[1].makes.parent / "checkpoint").exists()


def test_recipes_that_run_at_once_lose_no_record(steps: list[Step], tmp_path: Path) -> None:
    one, other = FinishedSteps(tmp_path / "steps.json"), FinishedSteps(tmp_path / "steps.json")
    run_all(steps[:1], one)
    run_all(steps[1:], other)
    one.finish(steps[0])
    assert run_all(steps, FinishedSteps(tmp_path / "steps.json")) == []


def test_other_settings_are_refused_unless_nothing_is_made_from_the_result(
    steps: list[Step], tmp_path: Path
) -> None:
    finished = FinishedSteps(tmp_path / "steps.json")
    run_all(steps, finished)
    with pytest.raises(UsageError, match="made with other settings"):
        finished.is_done(replace(steps[1], settings={"seed": 1}))
    assert not finished.is_done(replace(steps[2], settings={"seed": 1}))


def test_steps_call_public_functions_and_are_shown_as_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = tmp_path / "corpus" / "manifest.json"
    step = Step("import_corpus", {"sources": [tmp_path], "out": tmp_path / "corpus"}, made, {"workers": 1})
    seen: list[dict] = []

    def import_corpus(**given: object) -> None:
        seen.append(given)
        made.parent.mkdir(exist_ok=True)
        made.write_text("{}")

    monkeypatch.setattr("sentence_experts.import_corpus", import_corpus)
    caplog.set_level("INFO", logger="sentence_experts")
    for _ in range(2):
        run_steps([step], tmp_path / "steps.json")
    assert seen == [{**step.arguments, "workers": 1}]
    assert f"import_corpus(sources=['{tmp_path}'], out='{tmp_path}/corpus', workers=1)" in caplog.text
    assert f"import_corpus: {made} is done" in caplog.text

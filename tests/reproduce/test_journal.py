"""A step is done when the same command made its result from the same inputs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sentence_experts.errors import UsageError
from sentence_experts.reproduce.journal import Journal
from sentence_experts.reproduce.step import Step


@pytest.fixture
def steps(tmp_path: Path) -> list[Step]:
    """A corpus that the user brings -> pairs -> a trained model -> an evaluation."""
    corpus, pairs, run = tmp_path / "papers.parquet", tmp_path / "pairs.json", tmp_path / "run" / "run.json"
    corpus.write_text("articles")
    return [
        Step(("pairs",), pairs, (corpus,)),
        Step(("train",), run, (pairs,), resumes=True),
        Step(("evaluate",), tmp_path / "evaluation.json", (run,), can_be_replaced=True),
    ]


def run_all(steps: list[Step], journal: Journal) -> list[str]:
    """Run what is not done; each step writes down what it was made from. Gives the commands that ran."""
    ran = []
    for step in steps:
        if not journal.is_done(step):
            journal.begin(step)
            ran.append(step.command[0])
            make(step)
            journal.note(step)
    return ran


def make(step: Step) -> None:
    step.makes.parent.mkdir(exist_ok=True)
    step.makes.write_text(f"{step.command} of {[file.read_text() for file in step.made_from]}")


def test_what_was_made_from_a_changed_result_is_made_anew(steps: list[Step], tmp_path: Path) -> None:
    journal = Journal(tmp_path / "steps.json")
    assert run_all(steps, journal) == ["pairs", "train", "evaluate"]
    assert run_all(steps, journal) == []
    checkpoint = steps[1].makes.parent / "checkpoint"
    checkpoint.touch()
    steps[0].made_from[0].write_text("other articles")
    # Another recipe makes the pairs anew; this one finds its model out of date all the same.
    assert run_all(steps[:1], Journal(tmp_path / "steps.json")) == ["pairs"]
    assert run_all(steps, journal) == ["train", "evaluate"]
    assert not checkpoint.exists()
    assert run_all(steps, journal) == []


def test_the_same_result_made_again_leaves_the_rest_as_it_is(steps: list[Step], tmp_path: Path) -> None:
    journal = Journal(tmp_path / "steps.json")
    run_all(steps, journal)
    steps[0].makes.unlink()
    assert run_all(steps, journal) == ["pairs"]
    shutil.rmtree(steps[1].makes.parent)
    assert run_all(steps, journal) == ["train"]


def test_an_interrupted_step_is_not_done_and_keeps_what_it_goes_on_from(
    steps: list[Step], tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "steps.json")
    run_all(steps, journal)
    # Replaced by an evaluation of other settings, which is interrupted before it is noted.
    other = replace(steps[2], command=("evaluate", "--bootstrap", "0"))
    journal.begin(other)
    make(other)
    assert not journal.is_done(steps[2])

    steps[0].made_from[0].write_text("other articles")
    run_all(steps[:1], journal)
    journal.begin(steps[1])
    checkpoint = steps[1].makes.parent / "checkpoint"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    assert run_all(steps, journal) == ["train", "evaluate"]
    assert checkpoint.exists()


def test_recipes_that_run_at_once_lose_no_note(steps: list[Step], tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "steps.json"), Journal(tmp_path / "steps.json")
    run_all(steps[:1], one)
    run_all(steps[1:], other)
    one.note(steps[0])
    assert run_all(steps, Journal(tmp_path / "steps.json")) == []


def test_another_command_is_refused_unless_nothing_is_made_from_its_result(
    steps: list[Step], tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "steps.json")
    run_all(steps, journal)
    with pytest.raises(UsageError, match="made with other settings"):
        journal.is_done(replace(steps[1], command=("train", "--seed", "1")))
    assert not journal.is_done(replace(steps[2], command=("evaluate", "--seed", "1")))

"""A run on tasks learns, keeps its best model, goes on after a break, and refuses what makes no sense."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from helpers.saved_weights import weights_of
from helpers.small_training_tasks import INSTRUCTIONS, make_task_encoder, make_tasks_folder
from sentence_experts.errors import UsageError
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.data import TaskPairs
from sentence_experts.training.run import train
from sentence_experts.training.trainable import find_routes
from sentence_experts.training.validation import Validator

SHORT = TrainConfig(
    batch_size=8, max_steps=8, eval_steps=4, learning_rate=1e-3, warmup=0.0, seed=1, keep_checkpoints=True
)


@pytest.fixture(scope="module")
def model(task_experts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experts with dropout, whose random state has to survive a break."""
    folder = shutil.copytree(task_experts, tmp_path_factory.mktemp("dropout") / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_dropout_prob": 0.1}))
    return folder


@pytest.fixture(scope="module")
def finished(tasks: Tasks, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    train(str(model), tasks, SHORT, out)
    return out


def base_of(task_experts: Path) -> Path:
    return task_experts.with_name(f"{task_experts.name}-base")


def moved(before: Path, after: Path) -> set[str]:
    one, other = weights_of(before), weights_of(after)
    return {name for name in one if not torch.equal(one[name], other[name])}


def experts_in(names: set[str]) -> set[int]:
    return {int(name.split(".experts.")[1][0]) for name in names if ".experts." in name}


def test_every_expert_learns_and_the_best_figure_counts(finished: Path, model: Path) -> None:
    assert experts_in(moved(model, finished / "checkpoints" / "checkpoint-8")) == {0, 1, 2, 3}
    result = json.loads((finished / "run.json").read_text())
    assert (result["steps"], result["processes"]) == (8, 1)
    figures = [entry["eval_validation_mean"] for entry in result["history"]]
    assert [entry["step"] for entry in result["history"]] == [0, 4, 8]
    assert max(figures) == result["validation"]


def test_saved_model_has_figures_of_its_step(finished: Path, tasks: Tasks, task_experts: Path) -> None:
    dense = SentenceTransformer(str(base_of(task_experts)), device="cpu")
    result = json.loads((finished / "run.json").read_text())
    objective = TaskPairs(tasks)
    routes = find_routes([objective], SHORT, dense)
    validator = Validator.of([objective], routes, SHORT)
    again = validator(SentenceTransformer(str(finished / "model"), device="cpu"))
    best = next(entry for entry in result["history"] if entry["step"] == result["kept_step"])
    assert {f"eval_{name}": figure for name, figure in again.items()}.items() <= best.items()
    of_tasks = [best[f"eval_validation_{task}/ndcg_at_10"] for task in tasks.task_file.tasks]
    assert sum(of_tasks) / 3 == pytest.approx(best["eval_validation_mean"])


def test_a_metric_that_is_not_used_is_refused(tasks: Tasks, task_experts: Path) -> None:
    objective = TaskPairs(tasks)
    routes = find_routes([objective], SHORT, SentenceTransformer(str(base_of(task_experts)), device="cpu"))
    Validator.of([objective], routes, SHORT)
    with pytest.raises(UsageError, match="`pair_metric=f1_max` has no effect"):
        Validator.of([objective], routes, TrainConfig.of(SHORT, pair_metric="f1_max"))


def test_the_test_split_is_never_read(
    tasks: Tasks, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    pairs = Tasks.pairs

    def watched(self: Tasks, task: str, dataset: str, split: str):
        read.append(split)
        return pairs(self, task, dataset, split)

    monkeypatch.setattr(Tasks, "pairs", watched)
    train(str(model), tasks, SHORT.model_copy(update={"max_steps": 1}), tmp_path / "run")
    assert set(read) == {"train", "validation"}


def test_the_card_says_how_each_task_was_trained(finished: Path) -> None:
    card = (finished / "model" / "README.md").read_text()
    for expected in (
        "| retrieval | 48 | plants, brains | one dataset | 0.03 |",
        "| clustering | 48 | a, b | all datasets of the task | 0.06 |",
        "`search query: `",
        "curriculum: task_aware",
    ):
        assert expected in card


def test_a_dense_model_keeps_the_instructions_it_learned_with(
    tasks: Tasks, task_experts: Path, tmp_path: Path
) -> None:
    short = SHORT.model_copy(update={"max_steps": 1})
    for name, instructions in (("conditioned", True), ("plain", False)):
        config = short.model_copy(update={"instructions": instructions})
        train(str(base_of(task_experts)), tasks, config, tmp_path / name)
        prompts = SentenceTransformer(str(tmp_path / name / "model"), device="cpu").prompts
        assert {route: text for route, text in prompts.items() if text} == (
            INSTRUCTIONS if instructions else {}
        )


@pytest.mark.slow
def test_a_token_router_learns_with_its_balance(tasks: Tasks, minilm: str, tmp_path: Path) -> None:
    model = make_task_encoder(tmp_path / "model", minilm, router="token", top_k=2)
    short = SHORT.model_copy(update={"max_steps": 2, "eval_steps": 2})
    losses = {}
    for name, weight in (("same", None), ("none", 0.0)):
        config = short.model_copy(update={"balance_loss": weight})
        train(str(model), tasks, config, tmp_path / name)
        losses[name] = weights_of(tmp_path / name / "model")
        assert any(".router." in weight for weight in moved(model, tmp_path / name / "model"))
    assert any(not torch.equal(losses["none"][name], losses["same"][name]) for name in losses["same"])


def test_settings_that_would_have_no_effect_are_refused(model: Path, tmp_path: Path) -> None:
    weights = {name: {"weight": 2.0} for name in ("retrieval", "classification", "clustering")}
    weighted = make_tasks_folder(tmp_path / "tasks", fields=weights)
    with pytest.raises(UsageError, match="`batches=mixed`: weights of tasks draw"):
        train(str(model), weighted, SHORT, batches="mixed")
    with pytest.raises(UsageError, match="no room for text beside the prompt's"):
        train(str(model), weighted, SHORT, max_length=8)

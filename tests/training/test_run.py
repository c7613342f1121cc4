"""A run learns, stops, resumes, keeps its best model, and refuses what makes no sense."""

from __future__ import annotations

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from helpers.killed_run import run_until_killed
from helpers.saved_weights import weights_of
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.evaluation.evaluate import evaluate
from sentence_experts.models.loading import load
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import output
from sentence_experts.tasks.compile import compile_tasks
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.run import train
from sentence_experts.training.trainer import BadNumbersError
from sentence_experts.training.training_set import PairCollator
from sentence_experts.training.validation import PairValidation, Validator

SHORT = TrainConfig(batch_size=8, max_steps=12, eval_steps=4, learning_rate=1e-3)


@pytest.fixture(scope="module")
def finished(pairs: Pairs, experts_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    train(str(experts_model), pairs, SHORT, out)
    return out


def weights(run: Path) -> dict[str, torch.Tensor]:
    return weights_of(run / "model")


def test_the_saved_model_is_the_best_by_validation(finished: Path, pairs: Pairs) -> None:
    result = json.loads((finished / "run.json").read_text())
    validator = Validator([PairValidation(pairs.split("validation"))], batch_size=SHORT.batch_size)
    figures = validator(SentenceTransformer(str(finished / "model")))
    again = figures["validation_mean"]
    own = [figures[f"validation_{domain}/roc_auc"] for domain in pairs.domains]
    assert again == pytest.approx(sum(own) / 2)
    best = max(entry["eval_validation_mean"] for entry in result["history"])
    assert again == pytest.approx(best, abs=1e-6)
    assert best == result["validation"]


def _train_in_child(model: str, pairs: Path, out: Path) -> None:
    train(model, Pairs.open(pairs), SHORT, out)


def test_killed_run_resumes_to_the_same_bytes(
    finished: Path, pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    run_until_killed(_train_in_child, (str(experts_model), pairs.path, out), out, "checkpoints/checkpoint-*")
    with pytest.raises(UsageError, match=r"begun with another seed \(0\)"):
        train(str(experts_model), pairs, SHORT.model_copy(update={"seed": 9}), out)
    train(str(experts_model), pairs, SHORT, out)
    for file in sorted((finished / "model").glob("*.safetensors")):
        assert (out / "model" / file.name).read_bytes() == file.read_bytes(), file.name
    one, other = (json.loads((run / "run.json").read_text()) for run in (finished, out))
    # The logged training loss is a mean over ten steps, of which a resumed run has seen a part.
    assert {**one, "losses": None} == {**other, "losses": None}


@pytest.mark.parametrize(("batches", "most"), [("mixed", 2), ("homogeneous", 1)])
def test_batches_are_of_one_domain_when_set_so(
    pairs: Pairs,
    experts_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batches: str,
    most: int,
) -> None:
    seen: list[set[str]] = []

    class Watching(PairCollator):
        def __call__(self, features: list[dict]) -> dict:
            seen.append({row["anchor"].split("]")[0] for row in features})
            return super().__call__(features)

    monkeypatch.setattr("sentence_experts.training.run.PairCollator", Watching)
    config = SHORT.model_copy(update={"batches": batches, "max_steps": 8})
    train(str(experts_model), pairs, config, tmp_path / "run")
    assert max(len(domains) for domains in seen) == most
    assert set.union(*seen) == {"[CROPS", "[NEURO"}


def test_a_model_of_bad_numbers_is_not_trained(pairs: Pairs, experts_model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(experts_model, broken)
    model = SentenceTransformer(str(broken))
    with torch.no_grad():
        next(model[0].auto_model.parameters())[:] = float("nan")
    model.save_pretrained(str(broken), create_model_card=False)
    with pytest.raises(InputError, match="not finite"):
        train(str(broken), pairs, SHORT, tmp_path / "run")


def test_update_to_non_finite_weights_stops_the_run(
    pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    config = SHORT.model_copy(update={"learning_rate": 1e38, "max_steps": 1, "warmup": 0.0})
    with pytest.raises(BadNumbersError, match=r"after step 1 .*`learning_rate`"):
        train(str(experts_model), pairs, config, tmp_path / "run")


def test_tensorboard_logs_go_into_the_run(pairs: Pairs, experts_model: Path, tmp_path: Path) -> None:
    train(str(experts_model), pairs, SHORT.model_copy(update={"tensorboard": True}), tmp_path / "run")
    (events,) = (tmp_path / "run" / "logs").glob("events.*")
    assert b"eval/validation_f1_max" in events.read_bytes()


def test_a_logger_that_is_not_installed_is_named(pairs: Pairs, experts_model: Path, tmp_path: Path) -> None:
    if find_spec("wandb") is not None:
        pytest.skip("wandb is installed")
    with pytest.raises(SentenceExpertsError, match=r"sentence-experts\[wandb\]"):
        train(str(experts_model), pairs, SHORT.model_copy(update={"wandb": True}), tmp_path / "run")


def test_run_without_checkpoint_can_be_started_again(
    pairs: Pairs, experts_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="bf16"):
        train(str(experts_model), pairs, SHORT.model_copy(update={"bf16": True}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    # As a run leaves it that was killed in its first steps, with other settings.
    with output(tmp_path / "run", "training run", names=["checkpoints"], grows=True) as place:
        place.begin({"model": "another"})
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    short = SHORT.model_copy(update={"max_steps": 2})
    assert train(str(experts_model), pairs, short, tmp_path / "run").steps == 2


def test_a_shorter_model_in_memory_is_another_run(
    pairs: Pairs, experts_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = SHORT.model_copy(update={"max_steps": 1, "batch_size": 2})
    train(load(experts_model, device="cpu"), pairs, config, tmp_path / "run")
    (idle,) = re.findall(r"no batch of (\w+) in 1 steps: not trained", caplog.text)
    assert f"| {idle} | none of " in (tmp_path / "run/model/README.md").read_text()
    assert train(str(experts_model), pairs, config, tmp_path / "run").steps == 1  # finished already
    with pytest.raises(UsageError, match="another model"):
        train(load(experts_model, device="cpu", max_length=8), pairs, config, tmp_path / "run")


def test_other_folders_and_missing_models_are_refused(
    pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not touch")
    with pytest.raises(UsageError, match=r"holds other files \(thesis\.txt\)"):
        train(str(experts_model), pairs, SHORT, tmp_path / "mine")
    with pytest.raises(InputError, match="no such model folder"):
        train(str(tmp_path / "nowhere"), pairs, SHORT, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="do not fill one batch"):
        train(str(experts_model), pairs, SHORT.model_copy(update={"batch_size": 500}), tmp_path / "run")


def test_the_card_names_routes_data_and_figures(finished: Path) -> None:
    card = (finished / "model" / "README.md").read_text()
    for expected in (
        "[CROPS]",
        "2 experts in 2 of its 2 blocks",
        "64 pairs of titles",
        "F1max",
        "batch_size: 8",
    ):
        assert expected in card


def test_measuring_does_not_change_what_is_trained(pairs: Pairs, experts_model: Path) -> None:
    settings = SHORT.model_copy(update={"keep": "last", "max_steps": 6})
    often, once = (
        train(str(experts_model), pairs, settings, eval_steps=steps).model.state_dict() for steps in (1, 6)
    )
    assert all(torch.equal(often[name], once[name]) for name in once)


def test_validation_is_of_the_length_that_the_model_keeps(plain_model: Path) -> None:
    lead = "common words that say nothing " * 3
    kinds = ["rice", "wheat", "oats", "rye", "barley", "maize"]
    rows = [
        {"anchor": f"{lead} {a}", "positive": f"{lead} {b} {n}", "label": int(a == b), "split": split}
        for n, (a, b) in enumerate([(a, b) for a in kinds for b in kinds])
        for split in (["train", "validation"] if a == b else ["validation"])
    ]
    result = train(
        load(plain_model, device="cpu"), rows, max_steps=1, batch_size=2, max_length=8, learning_rate=1e-9
    )
    figures = evaluate(load(plain_model, device="cpu"), rows, split="validation", bootstrap=0)
    assert result.validation == pytest.approx(figures.models[0].pooled.metrics["roc_auc"], abs=1e-3)


def test_a_model_that_leaves_prompts_out_is_not_trained_with_them(plain_model: Path) -> None:
    model = load(plain_model, device="cpu")
    model.set_pooling_include_prompt(False)
    rows = [{"anchor": f"rice {n}", "positive": f"wheat {n}"} for n in range(20)]
    tasks = compile_tasks(
        {"search": {"kind": "retrieval", "datasets": {"d": rows}, "instructions": {"query": "Find: "}}}
    )
    with pytest.raises(UsageError, match="pooling leaves prompts out"):
        train(model, tasks, max_steps=1, batch_size=4)


def test_a_folder_of_the_user_that_is_called_logs_stays(
    pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    run, config = tmp_path / "run", SHORT.model_copy(update={"max_steps": 1})
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "mine.txt").write_text("mine")
    for seed in (1, 1, 2):
        train(str(experts_model), pairs, config, run, overwrite=True, seed=seed)
        assert (run / "logs" / "mine.txt").read_text() == "mine"

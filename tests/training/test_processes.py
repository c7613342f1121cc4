"""Two processes with their negatives put together train the model that one trains on the whole batch."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.distributed import DistNetworkError  # type: ignore[attr-defined]  # documented

from helpers import two_processes
from helpers.fresh_process import fresh
from helpers.saved_weights import weights_of
from helpers.small_training_tasks import make_task_encoder
from helpers.two_processes import BATCHES, LOSSES, batch_of, loss_and_gradients, make_loss
from sentence_experts.errors import UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.tasks.dataset import Tasks
from sentence_experts.training import processes
from sentence_experts.training.run import train

SCRIPT = Path(__file__).resolve().parents[1] / "helpers" / "two_processes.py"
# The script imports other helpers, which no process that is started as a program finds by itself.
PATHS = os.pathsep.join(filter(None, [str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH")]))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": PATHS}
SETTINGS: dict[str, Any] = {
    "max_steps": 4,
    "eval_steps": 2,
    "learning_rate": 1e-3,
    "warmup": 0.0,
    "swap": False,
}
# Both batch sizes are of one process. The pairs are drawn from both domains, each with its temperature.
OF_TASKS = {**SETTINGS, "batch_size": 4, "cache_mini_batch": 3, "keep_checkpoints": True}
OF_PAIRS = {
    **SETTINGS,
    "batch_size": 3,
    "temperatures": {"crops": 0.1},
    "balance_loss": 0.1,
    "keep_checkpoints": True,
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port"],
    "accelerate": [
        *("-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu", "--num_processes=2"),
        *("--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port"),
    ],
}


def run_together(work: dict[str, Any], launcher: str = "torchrun", fails: bool = False) -> str:
    """Run the helper in two processes; what they wrote on stdout and stderr."""
    launch = [*LAUNCHERS[launcher], str(free_port()), str(SCRIPT), json.dumps(work, default=str)]
    done = subprocess.run(
        [sys.executable, *launch],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == (1 if fails else 0), done.stdout[-5000:]
    return done.stdout


def run_forked(work: str, output: Path) -> str:
    """Run the helper in two processes with the environment of a launcher, without the time that one takes."""
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    place["MASTER_PORT"] = str(free_port())
    ranks = [{**place, "RANK": rank, "LOCAL_RANK": rank, "CUDA_VISIBLE_DEVICES": ""} for rank in ("0", "1")]
    both = [fresh().Process(target=_work, args=(work, rank, output)) for rank in ranks]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0], output.read_text()[-5000:]
    return output.read_text()


def _work(work: str, environment: dict[str, str], output: Path) -> None:
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    two_processes.main(work)


@dataclass(frozen=True)
class Together:
    """Files that two processes left behind.

    Attributes:
        folder: of rank0.pt, rank1.pt, tasks/ and pairs/.
        output: what they wrote on stdout and stderr.
        models: the models that they used.
    """

    folder: Path
    output: str
    models: dict[str, Path]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the first of two, as a launcher says."""
    for name, value in {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def still_experts(experts_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with learned sequence routers and without dropout, which would differ between processes."""
    import sentence_experts

    plain = SentenceTransformer(str(experts_model.with_name(f"{experts_model.name}-plain")), device="cpu")
    config = plain[0].auto_model.config
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    folder = tmp_path_factory.mktemp("still") / "model"
    encoder = sentence_experts.extend(plain, ["crops", "neuro"], router="learned")
    encoder.save(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def together(
    tasks: Tasks,
    pairs: Pairs,
    task_experts: Path,
    still_experts: Path,
    minilm: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Together:
    folder = tmp_path_factory.mktemp("together")
    token = make_task_encoder(folder / "token", minilm, router="token", top_k=2)
    learned = make_task_encoder(folder / "learned", minilm, router="learned")
    models = {"routed": task_experts, "token": token, "learned": learned, "pairs": still_experts}
    runs = [
        {"model": task_experts, "data": tasks.path, "out": folder / "tasks", "settings": OF_TASKS},
        {"model": still_experts, "data": pairs.path, "out": folder / "pairs", "settings": OF_PAIRS},
    ]
    work = {"out": folder, "models": models, "runs": runs}
    return Together(folder, run_forked(json.dumps(work, default=str), folder / "output.txt"), models)


@pytest.mark.slow
@pytest.mark.parametrize("task", BATCHES)
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients_are_those_of_the_whole_batch(together: Together, name: str, task: str) -> None:
    kind, options = LOSSES[name]
    model = SentenceTransformer(str(together.models[kind]), device="cpu").train()
    columns, labels = batch_of(name, model, task)
    alone = make_loss(model, **{**options, "cache_mini_batch": None})
    value, gradients = loss_and_gradients(alone, columns, labels)
    ranks = [torch.load(together.folder / f"rank{rank}.pt")[f"{name}, {task}"] for rank in (0, 1)]
    assert sum(rank[0] for rank in ranks) / 2 == pytest.approx(value, rel=1e-5)
    assert ranks[0][0] != pytest.approx(ranks[1][0], rel=5e-5)  # each has its own anchors
    for _, theirs in ranks:
        # A weight that no process used has no gradient, or zeros.
        assert all(not theirs[other].any() for other in theirs.keys() - gradients.keys())
        for parameter, gradient in gradients.items():
            scale = max(1.0, float(gradient.abs().max()))
            assert torch.allclose(theirs[parameter], gradient, rtol=1e-3, atol=2e-5 * scale), parameter


@pytest.mark.parametrize("kind", ["tasks", "pairs"])
def test_two_processes_train_the_model_of_one(
    together: Together, tasks: Tasks, pairs: Pairs, kind: str, tmp_path: Path
) -> None:
    data, settings, name = {"tasks": (tasks, OF_TASKS, "routed"), "pairs": (pairs, OF_PAIRS, "pairs")}[kind]
    whole = {**settings, "batch_size": 2 * settings["batch_size"], "cache_mini_batch": None}
    result = train(together.models[name], data, out=tmp_path / "run", **whole)
    theirs = json.loads((together.folder / kind / "run.json").read_text())
    assert theirs["processes"] == 2
    assert theirs["history"][-1] == pytest.approx(result.history[-1], abs=1e-4)
    before = weights_of(together.models[name])
    one, other = (weights_of(run / "model") for run in (tmp_path / "run", together.folder / kind))
    moved = max(float((one[name] - before[name]).abs().max()) for name in one)
    apart = max(float((one[name] - other[name]).abs().max()) for name in one)
    assert apart < 0.02 * moved
    assert any(".router." in name and not torch.equal(one[name], before[name]) for name in one) == (
        kind == "pairs"
    )


def test_only_the_first_process_logs_and_writes(together: Together) -> None:
    assert together.output.count("step 4: training loss") == 2  # one line per run
    for kind in ("tasks", "pairs"):
        written = [path for path in (together.folder / kind).rglob("*") if path.is_file()]
        # Only the random states are each process's own.
        own = [path.name for path in written if "rng_state" in path.name]
        assert sorted(set(own)) == ["rng_state_0.pth", "rng_state_1.pth"]
        assert not [path for path in written if path.name.endswith(".tmp")]
        card = (together.folder / kind / "model" / "README.md").read_text()
        assert "put together by 2 processes" in card


@pytest.mark.slow
def test_two_killed_processes_resume_to_the_same_weights(
    pairs: Pairs, experts_model: Path, tmp_path: Path
) -> None:
    """The model has dropout, so each process's random state counts."""
    settings = {**OF_PAIRS, "balance_loss": None, "max_steps": 12, "eval_steps": 3}
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    work = [
        {
            "out": tmp_path,
            "models": {},
            "runs": [{"model": experts_model, "data": pairs.path, "out": out, "settings": settings}],
        }
        for out in (killed, whole)
    ]
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    place["MASTER_PORT"] = str(free_port())
    both = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), json.dumps(work[0], default=str)],
            env={**ENVIRONMENT, **place, "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in ("0", "1")
    ]
    try:
        while not any(killed.glob("checkpoints/checkpoint-*/hashes.json")):
            assert all(process.poll() is None for process in both)
            time.sleep(0.001)
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert not (killed / "run.json").exists()
    assert [path.name for path in (killed / "checkpoints").glob("checkpoint-*")] == ["checkpoint-3"]
    for each in work:
        run_together(each)
    one, other = weights_of(killed / "model"), weights_of(whole / "model")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(not torch.equal(weight, one[name]) for name, weight in weights_of(experts_model).items())


@pytest.mark.slow
def test_the_death_of_one_process_ends_the_other_with_words_and_the_run_resumes(
    tasks: Tasks, task_experts: Path, tmp_path: Path
) -> None:
    settings = {**OF_TASKS, "keep_checkpoints": False, "max_steps": 6}
    run, out = {"model": task_experts, "data": tasks.path, "settings": settings}, tmp_path / "killed"
    work = {"out": tmp_path, "models": {}, "runs": [{**run, "out": out}]}
    output = run_together({**work, "killed": "1"}, "accelerate", fails=True)
    assert "process 0 of 2: another process of this training has ended" in output
    assert not (out / "run.json").exists()
    run_together(work, "accelerate")
    assert not (out / "checkpoints").exists()
    run_together({**work, "runs": [{**run, "out": tmp_path / "whole"}]}, "accelerate")
    one, other = (weights_of(folder / "model") for folder in (out, tmp_path / "whole"))
    assert all(torch.equal(one[name], other[name]) for name in other)


GLOO = "[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:58077"


@pytest.mark.parametrize("how", ["gloo", "store", "asked"])
def test_the_end_of_another_process_is_one_clear_error(how: str, two: None) -> None:
    def lose() -> None:
        with processes.end_together():
            if how == "asked":
                signal.raise_signal(signal.SIGTERM)
            raise RuntimeError(GLOO) if how == "gloo" else DistNetworkError("timeout")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(processes.OtherProcessEndedError, match=r"process 0 of 2: another .* same command"):
        lose()
    if how != "asked":  # the launcher's is still to come
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_errors_of_this_process_stay_what_they_are(two: None) -> None:
    for error in (RuntimeError("shapes do not fit"), UsageError("no folder")):
        with pytest.raises(type(error), match=str(error)), processes.end_together():
            raise error

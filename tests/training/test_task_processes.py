"""Two processes with their negatives put together do what one does on the whole batch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from helpers.saved_weights import weights_of
from helpers.small_training_tasks import make_task_encoder
from helpers.two_processes import BATCHES, LABELS, LOSSES, columns_of, loss_and_gradients
from sentence_experts.tasks.dataset import TasksFolder
from sentence_experts.training.task_config import TaskConfig
from sentence_experts.training.task_loss import TaskLoss
from sentence_experts.training.task_run import train_tasks

HELPERS = Path(__file__).resolve().parents[1] / "helpers"
SETTINGS = {"max_steps": 4, "eval_steps": 2, "learning_rate": 1e-3, "warmup": 0.0}


@dataclass(frozen=True)
class Together:
    """What two processes left behind.

    Attributes:
        folder: of rank0.pt, rank1.pt, and run/.
        said: what they wrote on stdout and stderr.
        models: the models whose losses were compared.
    """

    folder: Path
    said: str
    models: dict[str, Path]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def together(
    tasks: TasksFolder, task_experts: Path, minilm: str, tmp_path_factory: pytest.TempPathFactory
) -> Together:
    folder = tmp_path_factory.mktemp("together")
    token = make_task_encoder(folder / "token", minilm, router="token", top_k=2)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    verb = ["train", "--model", task_experts, "--tasks", tasks.path, "--out", folder / "run", *flags]
    launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    work = [HELPERS / "two_processes.py", folder, task_experts, token]
    done = subprocess.run(
        [sys.executable, *launch, *work, *verb, "--batch-size=4", "--cache-mini-batch=3"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return Together(folder, done.stdout, {"routed": task_experts, "token": token})


@pytest.mark.parametrize("task", BATCHES)
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients_are_those_of_the_whole_batch(together: Together, name: str, task: str) -> None:
    kind, options = LOSSES[name]
    model = SentenceTransformer(str(together.models[kind]), device="cpu").train()
    alone = TaskLoss(model, (0.03, 0.06), **{**options, "cache_mini_batch": None})
    value, gradients = loss_and_gradients(alone, columns_of(model, task), LABELS)
    ranks = [torch.load(together.folder / f"rank{rank}.pt")[f"{name}, {task}"] for rank in (0, 1)]
    assert sum(rank[0] for rank in ranks) / 2 == pytest.approx(value, rel=1e-5)
    assert ranks[0][0] != pytest.approx(ranks[1][0], rel=1e-3)  # each has its own anchors
    for _, theirs in ranks:
        # What no process used has no gradient, or zeros.
        assert all(not theirs[other].any() for other in theirs.keys() - gradients.keys())
        for parameter, gradient in gradients.items():
            assert torch.allclose(theirs[parameter], gradient, rtol=1e-3, atol=2e-5), parameter


def test_two_processes_train_the_model_of_one(
    together: Together, tasks: TasksFolder, task_experts: Path, tmp_path: Path
) -> None:
    # Two processes with 4 pairs each and gradient caching; one process with 8, without.
    result = train_tasks(str(task_experts), tasks, tmp_path / "run", TaskConfig(batch_size=8, **SETTINGS))
    theirs = json.loads((together.folder / "run" / "run.json").read_text())
    assert (theirs["processes"], result["processes"]) == (2, 1)
    assert theirs["history"][-1] == pytest.approx(result["history"][-1], abs=1e-4)
    before = weights_of(task_experts)
    one, other = (weights_of(run / "run" / "model") for run in (tmp_path, together.folder))
    moved = max(float((one[name] - before[name]).abs().max()) for name in one)
    apart = max(float((one[name] - other[name]).abs().max()) for name in one)
    assert apart < 0.02 * moved


def test_only_the_first_process_speaks_and_writes(together: Together) -> None:
    assert together.said.count("best validation") == 1
    assert together.said.count("step 4: validation") == 1
    written = [path for path in (together.folder / "run").rglob("*") if path.is_file()]
    # Only the random states are each process's own.
    own = [path.name for path in written if "rng_state" in path.name]
    assert sorted(set(own)) == ["rng_state_0.pth", "rng_state_1.pth"]
    assert not [path for path in written if path.name.endswith(".tmp")]
    assert "put together by 2 processes" in (together.folder / "run" / "model" / "README.md").read_text()

"""Work of two processes together, started by a launcher for `test_processes`: losses (a file each) and runs.

Also the batch that the tests of the losses share.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

import sentence_experts.register  # noqa: F401  # stock loaders then know the model types
from sentence_experts.training.losses import (
    ContrastiveLoss,
    KnownPositives,
    sequence_router_loss,
    token_router_loss,
)

ANCHORS = ["rice yield", "neuron spike", "wheat rust on a leaf", "glia", "maize root", "a retina and a cone"]
POSITIVES = ["drought field", "cortex", "rust", "myelin of an axon", "soil", "vision"]
NEGATIVES = ["millet", "memory", "harvest of grain", "sleep", "leaf", "hippocampus"]
# Task -> the instructions of its two sides.
BATCHES = {"retrieval": ("search query: ", "search document: "), "clustering": ("clustering: ",) * 2}
GROUPS = torch.tensor([0, 1, 0, 2, 3, 4])  # two pairs of one group, which end up in both processes
LABELS = torch.stack([torch.ones(6).long(), torch.zeros(6).long(), GROUPS, GROUPS, 10 + GROUPS], dim=1)
# No links: texts of one group, and no others, are positives of each other.
GROUPS_ONLY = KnownPositives(torch.zeros(0), torch.zeros(0), count=100)
# Comparisons: name -> (which model, the options of its loss).
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("routed", {}),
    "cached": ("routed", {"cache_mini_batch": 2}),
    "token router": ("token", {"router": token_router_loss(0.5)}),
    "token router, cached": ("token", {"router": token_router_loss(0.5), "cache_mini_batch": 2}),
    "sequence router": ("learned", {"router": sequence_router_loss(0.7, 0.3)}),
    "sequence router, cached": ("learned", {"router": sequence_router_loss(0.7, 0.3), "cache_mini_batch": 2}),
    "argmax_target": ("routed", {"kind": "argmax_target"}),
    "learned_temperature": ("routed", {"kind": "learned_temperature"}),
    "learned_temperature, cached": ("routed", {"kind": "learned_temperature", "cache_mini_batch": 2}),
}


def make_loss(model: SentenceTransformer, **options: Any) -> ContrastiveLoss:
    """A loss for `BATCHES`: retrieval with experts 0 and 1, clustering with expert 3."""
    return ContrastiveLoss(model, (0.03, 0.06), known=GROUPS_ONLY, experts=[(0, 1), (3, 3)], **options)


def batch_of(name: str, model: SentenceTransformer, task: str, rows: slice = slice(None)) -> tuple:
    """The columns and labels for a loss; some take no mined negatives."""
    columns = 2 if "kind" in LOSSES[name][1] else 3
    return columns_of(model, task, rows)[:columns], LABELS[rows][:, : 2 + columns]


def columns_of(model: SentenceTransformer, task: str, rows: slice = slice(None)) -> list[dict]:
    """The tokenised batch: anchors, positives, negatives."""
    first, second = BATCHES[task]
    leads = ((first, ANCHORS), (second, POSITIVES), (second, NEGATIVES))
    return [model.preprocess([lead + text for text in texts[rows]]) for lead, texts in leads]


def loss_and_gradients(loss: nn.Module, columns: list[dict], labels: Tensor) -> tuple[float, dict]:
    """The loss, and each parameter's gradient that there is."""
    loss.zero_grad(set_to_none=True)
    value = loss([dict(column) for column in columns], labels)
    value.backward()
    found = {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}
    return float(value.detach()), {name.replace("model.module.", "model."): g for name, g in found.items()}


def compare(models: dict[str, str], out: Path) -> None:
    """Each loss on this process's half of the batch, under DistributedDataParallel."""
    from torch.nn.parallel import DistributedDataParallel

    rank = int(os.environ["RANK"])
    half = slice(3 * rank, 3 * rank + 3)
    found = {}
    for name, (kind, options) in LOSSES.items():
        model = SentenceTransformer(models[kind], device="cpu").train()
        for task in BATCHES:
            loss = make_loss(model, **options)
            columns, labels = batch_of(name, model, task, half)
            loss.model = DistributedDataParallel(model, find_unused_parameters=True)  # type: ignore[assignment]
            found[f"{name}, {task}"] = loss_and_gradients(loss, columns, labels)
    torch.save(found, out / f"rank{rank}.pt")


def main(given: str) -> None:
    """Compare losses and train, as the JSON says."""
    from accelerate import PartialState

    from helpers.killed_run import die_after
    from sentence_experts.cli.console import show_logs
    from sentence_experts.training.processes import OtherProcessEndedError
    from sentence_experts.training.run import train

    torch.set_num_threads(1)
    show_logs()
    work = json.loads(given)
    PartialState(cpu=True)
    if work["models"]:
        compare(work["models"], Path(work["out"]))
    for run in work["runs"]:
        if work.get("killed") == os.environ["RANK"]:
            die_after(Path(run["out"]), "checkpoints/checkpoint-*/hashes.json")
        try:
            train(run["model"], run["data"], out=run["out"], **run["settings"])
        except OtherProcessEndedError:
            time.sleep(1)  # the launcher sends SIGTERM meanwhile, as it does on a busy machine
            raise


if __name__ == "__main__":
    main(sys.argv[1])

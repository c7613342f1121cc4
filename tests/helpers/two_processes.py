"""What two processes compute together, for `test_task_processes`: started by torchrun, one file a process.

Also the batch that the losses' tests share.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

ANCHORS = ["rice yield", "neuron spike", "wheat rust on a leaf", "glia", "maize root", "a retina and a cone"]
POSITIVES = ["drought field", "cortex", "rust", "myelin of an axon", "soil", "vision"]
NEGATIVES = ["millet", "memory", "harvest of grain", "sleep", "leaf", "hippocampus"]
# Task -> the instructions of its two sides.
BATCHES = {"retrieval": ("search query: ", "search document: "), "clustering": ("clustering: ",) * 2}
GROUPS = torch.tensor([0, 1, 0, 2, 3, 4])  # two pairs of one group, which end up in both processes
LABELS = torch.stack([torch.ones(6).long(), torch.zeros(6).long(), GROUPS, GROUPS, 10 + GROUPS], dim=1)
# What is compared: name -> (which model, the options of its loss).
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("routed", {}),
    "cached": ("routed", {"cache_mini_batch": 2}),
    "balanced": ("token", {"balance": 0.5}),
    "balanced and cached": ("token", {"balance": 0.5, "cache_mini_batch": 2}),
}


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

    from sentence_experts.training.task_loss import TaskLoss

    rank = int(os.environ["RANK"])
    half = slice(3 * rank, 3 * rank + 3)
    found = {}
    for name, (kind, options) in LOSSES.items():
        model = SentenceTransformer(models[kind], device="cpu").train()
        for task in BATCHES:
            loss = TaskLoss(model, (0.03, 0.06), **options)
            loss.model = DistributedDataParallel(model, find_unused_parameters=True)
            found[f"{name}, {task}"] = loss_and_gradients(loss, columns_of(model, task, half), LABELS[half])
    torch.save(found, out / f"rank{rank}.pt")


if __name__ == "__main__":
    from accelerate import PartialState

    from sentence_experts.cli.main import main

    torch.set_num_threads(1)
    work, routed, token, *arguments = sys.argv[1:]
    PartialState(cpu=True)
    compare({"routed": routed, "token": token}, Path(work))
    main(arguments)

"""A training step (forward, loss, backward, optimizer) compared with the padded one and the dense model.

    python benchmarks/training_step.py [--experts 5] [--batch-size 32] [--rounds 7]

all-MiniLM-L6-v2, co-cited titles' stand-ins: real titles of mixed routes, MultipleNegativesRankingLoss of
sentence-transformers, AdamW; one thread and its process time. "Padded" is sentence-transformers' own way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from measuring import elife_texts, in_turn, options, ratio, table, write

DENSE = "dense, packed"


def step_of(model: Any, pairs: tuple[list[str], list[str]], optimizer: Any = None) -> Callable[[], object]:
    """One step on these anchors and positives, by default with a new optimizer."""
    import torch
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.util import batch_to_device

    loss = MultipleNegativesRankingLoss(model)
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=2e-5)
    sides = [batch_to_device(model.preprocess(side), model.device) for side in pairs]

    def run() -> None:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss([dict(side) for side in sides], torch.empty(0)).backward()
        optimizer.step()

    return run


def main() -> None:
    """Measure, and write the table."""
    given = options(__doc__, experts=5, batch_size=32, rounds=7)
    import torch

    torch.set_num_threads(1)
    import sentence_experts
    from sentence_experts.models.architectures.packed_forward import use_packing

    names = [f"domain{number}" for number in range(given.experts)]
    titles, _ = elife_texts(2 * given.batch_size)
    found = {}
    for layers in ("all", "none"):
        for packed in (True, False):
            model = sentence_experts.extend("minilm", names, layers=layers)
            use_packing(model, packed)
            lead = [model.prompts[name] or "" for name in names]
            routed = [lead[number // 2 % len(lead)] + text for number, text in enumerate(titles)]
            name = f"{'experts' if layers == 'all' else 'dense'}, {'packed' if packed else 'padded'}"
            found[name] = step_of(model, (routed[::2], routed[1::2]))
    seconds = in_turn(found, given.rounds, time.process_time)
    rows = [[name, f"{ratio(seconds, name, DENSE):.3f}"] for name in found]
    text = "\n".join(
        [
            "# A training step",
            "",
            f"{given.batch_size} pairs of titles, {given.experts} experts in one batch, times as long as the "
            "dense model packed; fp32, one thread, process time, medians. Made by "
            "`python benchmarks/training_step.py`.",
            "",
            table(["", "of the dense model's"], rows),
        ]
    )
    write("training_step", {"ratios": {name: ratio(seconds, name, DENSE) for name in found}}, text)


if __name__ == "__main__":
    main()

"""Memory that training with experts takes.

    python benchmarks/training_memory.py [--experts 5 20 64] [--batch-size 64]

all-MiniLM-L6-v2 takes one real training step of each route (AdamW, titles); then the tensors are counted:
weights, gradients of the last step, the optimizer's moments, and what the forward pass of the last step keeps
for the backward pass. The sums are above what is there at any one time, since gradients come while what was
kept goes. Counted on the CPU, in packed batches; a GPU pads, and its allocator adds its own share
(`benchmarks/gpu.py` measures it).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from measuring import elife_texts, options, table, write

MEGABYTE = 1e6


def size(tensors: Iterable[Any]) -> float:
    """Their megabytes."""
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors)) / MEGABYTE


class Kept:
    """While open, counts what forward passes keep for the backward pass, weights left out."""

    def __init__(self, model: Any) -> None:
        import torch

        self._weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self._storages: dict[int, int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._note, lambda tensor: tensor)

    def _note(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._weights:
            self._storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    def __enter__(self) -> Kept:
        self._hooks.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._hooks.__exit__(*raised)

    @property
    def megabytes(self) -> float:
        """Megabytes that were kept, all of it at once before the backward pass begins."""
        return sum(self._storages.values()) / MEGABYTE


class Training:
    """A model with its loss and optimizer."""

    def __init__(self, experts: int) -> None:
        import torch
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

        import sentence_experts

        names = [f"domain{number}" for number in range(experts)]
        self.model: Any = (
            sentence_experts.extend("minilm", names) if names else sentence_experts.load("minilm")
        )
        self.leads: list[str] = [self.model.prompts[name] or "" for name in names] or [""]
        self._loss = MultipleNegativesRankingLoss(self.model)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5)

    def step(self, leads: Sequence[str], titles: Sequence[str]) -> float:
        """Train on pairs of titles behind these leads in turn; the megabytes kept for the backward pass."""
        import torch

        texts = [leads[number // 2 % len(leads)] + title for number, title in enumerate(titles)]
        sides = [self.model.preprocess(texts[first::2]) for first in (0, 1)]
        self.model.train()
        self._optimizer.zero_grad(set_to_none=True)
        with Kept(self.model) as kept:
            loss = self._loss(sides, torch.empty(0))
        loss.backward()
        self._optimizer.step()
        return kept.megabytes

    def held(self) -> dict[str, float]:
        """Megabytes of the weights and what belongs to them."""
        weights = list(self.model.parameters())
        state = self._optimizer.state
        return {
            "weights": size(weights),
            "gradients": size(one.grad for one in weights if one.grad is not None),
            "moments": size(moment for one in weights for moment in state[one].values()),
        }


def measure(experts: int, titles: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a model with this many experts (0: dense): a batch of one route, and one of all."""
    training = Training(experts)
    for lead in training.leads:  # every expert has moments from here on
        training.step([lead], titles[:4])
    rows = []
    for batch, leads in {"one route": training.leads[:1], "all routes": training.leads}.items():
        if not experts and batch == "all routes":
            continue
        kept = training.step(leads, titles)
        parts = training.held()
        rows.append(
            {
                "experts": experts,
                "batch": batch if experts else "",
                **parts,
                "kept": kept,
                "together": sum(parts.values()) + kept,
            }
        )
    return rows


def main() -> None:
    """Count, and write the table."""
    given = options(__doc__, experts=[5, 20, 64], batch_size=64)
    titles, _ = elife_texts(2 * given.batch_size)
    rows = [row for experts in (0, *given.experts) for row in measure(experts, titles)]
    dense = rows[0]["together"]
    header = ["", "batch of", "weights", "gradients", "moments", "kept for backward"]
    header += ["sum", "of dense"]
    cells = [
        [
            f"{row['experts']} experts" if row["experts"] else "dense",
            row["batch"],
            *(f"{row[name]:,.0f}" for name in ("weights", "gradients", "moments", "kept", "together")),
            f"{row['together'] / dense:.2f}",
        ]
        for row in rows
    ]
    text = "\n".join(
        [
            "# What training holds in memory",
            "",
            f"Megabytes, counted from the tensors of real training steps of {given.batch_size} pairs of "
            "titles; all-MiniLM-L6-v2, fp32, AdamW, every expert trained before. Sums are above the peak, as "
            "gradients come while what was kept goes. Counted on the CPU, in packed batches. "
            "Made by `python benchmarks/training_memory.py`.",
            "",
            table(header, cells),
        ]
    )
    write("training_memory", {"rows": rows}, text)


if __name__ == "__main__":
    main()

"""Experts that come into memory when they are called, while the least recently used leave it.

For models of many experts of which a process uses few at a time. The memory is really given back: an expert's
weights are a mapping of its own file, which closes with the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any

from torch import nn

from sentence_experts.errors import UsageError
from sentence_experts.models.storage.offload import DISK, bring, expert_blocks, sent_away
from sentence_experts.models.storage.shards import WeightFiles


class ExpertPager:
    """What a model asks for its experts, forward pass by forward pass; several threads may."""

    def __init__(self, model: Any, files: WeightFiles, most: int) -> None:
        """Args:
            model: the model with experts; they begin where they are, in memory or on disk.
            files: its weights.
            most: experts in memory at a time. A batch that calls more is served; then the limit holds again.

        Raises:
            UsageError: fewer than one.
        """
        if most < 1:
            raise UsageError(f"max_resident_experts is {most}; at least one expert must be in memory")
        self.most = most
        self._model = model
        self._files = files
        self._blocks = dict(expert_blocks(model))
        held = [number for number in range(len(model.config.experts)) if number not in model.idle_experts]
        # Those in memory, the least recently used first; and how many forward passes are using each.
        self._resident: dict[int, int] = dict.fromkeys(held, 0)
        self._lock, self._loading = Lock(), Lock()

    @contextmanager
    def using(self, experts: Sequence[int]) -> Iterator[None]:
        """Have these experts in memory while the block runs."""
        if self._model.training:
            raise UsageError("experts that come and go cannot be trained; load the model without a limit")
        entered = []
        try:
            for number in experts:
                self._enter(number)
                entered.append(number)
            yield
        finally:
            with self._lock:
                for number in entered:
                    self._resident[number] -= 1
                self._make_room(self.most)

    def _enter(self, number: int) -> None:
        """Note one more user of an expert, which is brought first where it is not in memory."""
        if self._noted(number):
            return
        with self._loading:  # whoever uses those that are there does not wait for one that comes
            if self._noted(number):
                return
            with self._lock:
                self._make_room(self.most - 1)
            bring(self._model, self._blocks, number, self._files)
            with self._lock:
                self._model.idle_experts -= {number}
                self._resident[number] = 1

    def _noted(self, number: int) -> bool:
        with self._lock:
            if number not in self._resident:
                return False
            self._resident[number] = self._resident.pop(number) + 1
            return True

    def prefetch(self, experts: Sequence[int]) -> Thread:
        """Bring experts in the background, for texts that are about to call them.

        There must be room for them beside those in use: with `most` 1 they leave again at once.

        Returns:
            What brings them; `join` waits for it.
        """

        def bring_all() -> None:
            for number in experts:
                with self.using([number]):
                    pass

        thread = Thread(target=bring_all, name="prefetch", daemon=True)
        thread.start()
        return thread

    def _make_room(self, left: int) -> None:
        """Send experts away until so many are left, or all that are left are in use."""
        unused = [number for number, users in self._resident.items() if not users]
        for number in unused[: max(len(self._resident) - left, 0)]:
            for experts in self._blocks.values():
                experts[number] = sent_away(experts.expert(number), DISK)
            self._model.idle_experts |= {number}
            del self._resident[number]


def bytes_of_an_expert(model: nn.Module) -> int:
    """What one expert takes in memory, over all blocks."""
    total = 0
    for _, experts in expert_blocks(model):
        first: Any = experts.expert(0)
        held = getattr(first, "blueprint", first)
        total += sum(weight.numel() * weight.element_size() for weight in held.parameters())
    return total

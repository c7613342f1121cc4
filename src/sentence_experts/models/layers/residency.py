"""Residency of experts in memory only while in use; idle ones wait on disk or in the CPU's memory.

A text meets one expert, so a model in use for one route needs no more memory than a dense model (MoTE,
section 3.1). The place of an idle expert in each block is taken by an `IdleExpert` without weights; from the
disk its weights come back out of the model's safetensors files, of which nothing else is read. They are
copies, not mappings of a file, which may be written to.

The experts in memory are either chosen by the caller (`keep`) or bounded by a limit (`limit`): an expert is
then loaded when a text needs it, and the least recently used one is unloaded.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from sentence_experts.compat.torch import changes_of, sample_weights
from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.layers.experts import Experts, IdleExpert
from sentence_experts.models.layers.weight_files import (
    REMEDY,
    WeightFiles,
    check_names,
    name_some,
    weights_file,
)

DISK, CPU = "disk", "cpu"


class Residency:
    """The experts of a model that are in memory; several threads may use the model at once.

    Attributes:
        files: files that the model was loaded from; None for a model that was made in memory.
        limit: maximum number of experts in memory; None for no limit. A batch that calls more experts is
            encoded all the same, and the limit restored afterwards.
    """

    def __init__(self, model: Any, in_memory: bool = True) -> None:
        """Begin with all experts of the transformer in memory, or all of them on disk."""
        self._model = model
        self.files: WeightFiles | None = None
        self.limit: int | None = None
        experts = range(len(model.config.experts)) if in_memory else ()
        # Expert in memory, the least recently used first -> the number of forward passes that use it.
        self._users: dict[int, int] = dict.fromkeys(experts, 0)
        self._restored: dict[int, Any] = {}  # expert -> state of its weights as they were read from a file
        self._lock = RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the lock and the counts of users: a copy begins with new ones."""
        with self._lock:
            return {**self.__dict__, "_users": dict.fromkeys(self._users, 0), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=RLock())

    @property
    def idle(self) -> frozenset[int]:
        """Experts that are not in memory."""
        return frozenset(range(len(self._model.config.experts))) - set(self._users)

    def keep(self, experts: set[int], waiting: str) -> None:
        """Load these experts into memory, and remove all others: drop them ("disk"), or move them ("cpu")."""
        if waiting not in (DISK, CPU):
            raise UsageError(f"`idle={waiting}`: idle experts are kept on {DISK} or {CPU}")
        if not self._blocks():
            return  # a dense control
        others = sorted(set(range(len(self._model.config.experts))) - experts)
        with self._lock:
            if waiting == DISK:
                self._check_unchanged(others, "save the model, or keep idle experts with idle='cpu'")
            was_whole = not self.idle
            for number in others:  # remove before loading, so that memory never holds more than needed
                self._remove(number, waiting)
            if waiting == DISK and was_whole and others:
                _leave_mapping(self._model)
            for number in sorted(experts & self.idle):
                self._restore(number)

    @contextmanager
    def using(self, experts: Sequence[int]) -> Iterator[None]:
        """Have these experts in memory while the block runs."""
        if self.limit is None:
            if missing := sorted(set(experts) - set(self._users)):
                names = ", ".join(repr(self._model.config.experts[number]) for number in missing)
                raise RouteError(
                    f"the expert of {names} is not loaded: load(path, routes=[...]) or "
                    "model.use_routes([...]) loads those that are named"
                )
            yield
            return
        if self._model.training:
            raise UsageError("experts that come and go cannot be trained; load the model without a limit")
        entered = []
        try:
            for number in experts:
                with self._lock:
                    if number not in self._users:
                        self._make_room(self.limit - 1)
                        self._restore(number)
                    self._users[number] = self._users.pop(number) + 1
                    entered.append(number)
            yield
        finally:
            with self._lock:
                for number in entered:
                    self._users[number] -= 1
                with suppress(UsageError, InputError):  # one that cannot go stays
                    self._make_room(self.limit)

    def check_files(self) -> None:
        """Check that the files hold the weights of every expert, and no others."""
        assert self.files is not None
        numbers = range(len(self._model.config.experts))
        known = {name for number in numbers for _, _, names in self._places(number) for name in names}
        check_names(
            weights_file(self.files.source), known - self.files.expert_names, self.files.expert_names - known
        )

    def idle_weights(self) -> dict[str, Tensor]:
        """Return the weights of the idle experts by name, which the model's `state_dict` lacks."""
        weights: dict[str, Tensor] = {}
        for number in sorted(self.idle):
            weights |= self._read_idle(number)
            for _, expert, names in self._places(number):
                if not _is_on_disk(expert):
                    state = expert.state_dict()
                    weights |= {name: state[own] for name, own in names.items()}
        return {name: weight.to(self._model.dtype) for name, weight in weights.items()}

    def _blocks(self) -> dict[str, Experts]:
        """Return the experts of each block, by the path of the module that holds them."""
        modules = self._model.named_modules()
        return {name: module for name, module in modules if isinstance(module, Experts)}

    def _places(self, number: int) -> Iterator[tuple[Experts, nn.ModuleDict, dict[str, str]]]:
        """Yield the experts of each block, the modules of one, and its weights' names: model -> expert."""
        for path, experts in self._blocks().items():
            place = experts.expert(number)
            expert = place.expert if isinstance(place, IdleExpert) else place
            yield experts, expert, {f"{path}.{number}.{name}": name for name in expert.state_dict()}

    def _make_room(self, left: int) -> None:
        """Remove unused experts until at most `left` are in memory; those that were changed stay.

        Raises:
            UsageError, InputError: fewer can be removed, as others were changed or their files are gone.
        """
        kept: UsageError | InputError | None = None
        for number in [number for number, users in self._users.items() if not users]:
            if len(self._users) <= left:
                return
            if self._restored.get(number) != self._state_of(number):
                try:
                    self._check_unchanged([number], "load the model without a limit")
                except (UsageError, InputError) as error:
                    kept = error
                    continue
            self._remove(number, DISK)
        if kept is not None and len(self._users) > left:
            raise kept

    def _remove(self, number: int, waiting: str) -> None:
        """Replace an expert by an `IdleExpert` in every block."""
        for experts, expert, _ in self._places(number):
            weights = list(expert.parameters())
            if waiting == CPU and not _is_on_disk(expert):
                experts[number] = IdleExpert(expert.to("cpu"))
                continue
            # The memo replaces each weight by an empty one, so that the copy holds none of them.
            empty = {id(one): nn.Parameter(torch.empty_like(one, device="meta")) for one in weights}
            experts[number] = IdleExpert(copy.deepcopy(expert, empty))
        self._users.pop(number, None)
        self._restored.pop(number, None)

    @torch.inference_mode(False)  # an expert that comes while texts are encoded can be trained later
    def _restore(self, number: int) -> None:
        """Put an idle expert back into every block."""
        is_on_disk = all(_is_on_disk(expert) for _, expert, _ in self._places(number))
        stored = self._read_idle(number)
        for experts, expert, names in self._places(number):
            if _is_on_disk(expert):
                shapes = {name: weight.shape for name, weight in expert.state_dict().items()}
                state = {own: stored.pop(name) for name, own in names.items()}
                bad = [
                    n for n, each in state.items() if each.shape != shapes[n] or not each.is_floating_point()
                ]
                if bad:
                    raise InputError(
                        f"{weights_file(self.files.source if self.files else '')}: weights of expert "
                        f"{self._model.config.experts[number]!r} have another shape or kind of number than "
                        f"the config says: {name_some(bad)}; {REMEDY}"
                    )
                expert.load_state_dict(
                    {name: weight.to(self._model.dtype) for name, weight in state.items()}, assign=True
                )
            experts[number] = expert.to(self._model.device).train(self._model.training)
        self._users[number] = 0
        if is_on_disk:
            self._restored[number] = self._state_of(number)

    def _state_of(self, number: int) -> Any:
        """Return a value that changes with the weights of an expert: their places, changes and samples."""
        weights = {
            f"{place}.{name}": weight
            for place, (_, expert, _) in enumerate(self._places(number))
            for name, weight in expert.named_parameters()
        }
        changes = {name: (weight.data_ptr(), changes_of(weight)) for name, weight in weights.items()}
        return changes, sample_weights(weights)

    def _read_idle(self, number: int) -> dict[str, Tensor]:
        """Read the weights of an expert in all blocks where it waits on disk."""
        waiting = (names for _, expert, names in self._places(number) if _is_on_disk(expert))
        return self._read([name for names in waiting for name in names])

    def _read(self, names: list[str]) -> dict[str, Tensor]:
        """Read weights; all of an expert at once, as its file is read whole."""
        if names and self.files is None:
            raise UsageError("save the model and load it again first: its idle experts are in no file")
        return dict(self.files.read(names)) if self.files is not None else {}

    def _check_unchanged(self, dropped: Sequence[int], remedy: str) -> None:
        """Refuse to drop weights that are in no file."""
        for number in dropped:
            current_weights = {
                name: weights[own]
                for _, expert, names in self._places(number)
                if not _is_on_disk(expert)
                for weights in [expert.state_dict()]
                for name, own in names.items()
            }
            named = (
                current_weights.keys() if self.files is None else current_weights.keys() & self.files.of_key
            )
            read = self._read(sorted(named))
            if len(read) < len(current_weights) or any(
                not torch.equal(current_weights[name].cpu(), weight.to(current_weights[name].dtype))
                for name, weight in read.items()
            ):
                raise UsageError(
                    f"expert {self._model.config.experts[number]!r} has changed since it was loaded, "
                    f"and dropping it would lose that; {remedy}"
                )


def _is_on_disk(expert: nn.Module) -> bool:
    return any(weight.is_meta for weight in expert.parameters())


def _leave_mapping(model: nn.Module) -> None:
    """Copy the weights of a model that was loaded whole, once a part of them is dropped.

    They all lie in one mapping of the file, which lives as long as any of them, dropped experts included.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu":
            parameter.data = parameter.data.clone()

"""Experts in memory only while they are in use; idle ones wait on disk or in the CPU's memory.

A text meets one expert, so a model in use for one route needs no more memory than a dense model (MoTE,
section 3.1). The place of an idle expert in each block is taken by an `IdleExpert` without weights; from the
disk its weights come back out of the model's safetensors files, of which nothing else is read. The memory is
really given back: an expert's weights are a mapping of its own file, which closes with the last of them.

The experts in memory are either chosen by the caller (`keep`) or bounded by a limit (`limit`): an expert is
then loaded when a text needs it, and the least recently used one is unloaded.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.models.layers.experts import Experts, IdleExpert
from sentence_experts.models.layers.weight_files import REMEDY, WeightFiles, check_names, named, weights_file

DISK, CPU = "disk", "cpu"


class Residency:
    """Which experts of a model are in memory; several threads may use the model at once.

    Attributes:
        files: the files that the model was loaded from; None for a model that was made in memory.
        limit: maximum number of experts in memory; None for no limit. A batch that calls more experts is
            encoded all the same, and the limit restored afterwards.
    """

    def __init__(self, model: Any, in_memory: bool = True) -> None:
        """Begin with all experts of the transformer in memory, or all of them on disk."""
        self._model = model
        self.files: WeightFiles | None = None
        self.limit: int | None = None
        experts = range(len(model.config.experts)) if in_memory else ()
        # Those in memory, the least recently used first -> the number of forward passes that use each.
        self._users: dict[int, int] = dict.fromkeys(experts, 0)
        self._lock, self._loading = Lock(), Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but locks and counts of users: a copy begins with its own."""
        with self._lock:
            users = dict.fromkeys(self._users, 0)
        return {**self.__dict__, "_users": users, "_lock": None, "_loading": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock(), _loading=Lock())

    @property
    def idle(self) -> frozenset[int]:
        """The experts that are not in memory."""
        return frozenset(range(len(self._model.config.experts))) - set(self._users)

    def keep(self, experts: set[int], waiting: str) -> None:
        """Load these experts into memory, and remove all others: drop them ("disk"), or move them ("cpu")."""
        if waiting not in (DISK, CPU):
            raise UsageError(f"`idle={waiting}`: idle experts are kept on {DISK} or {CPU}")
        if not self._blocks():
            return  # a dense control
        others = set(range(len(self._model.config.experts))) - experts
        with self._loading:
            if waiting == DISK:
                self._check_unchanged(sorted(others))
            was_whole = not self.idle
            # Remove before loading, so that memory never holds more than needed.
            with self._lock:
                for number in sorted(others):
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
                self._enter(number)
                entered.append(number)
            yield
        finally:
            with self._lock:
                for number in entered:
                    self._users[number] -= 1
                self._make_room(self.limit)

    def check_files(self) -> None:
        """Check that the files hold the weights of every expert, and no others."""
        assert self.files is not None
        known = {
            name
            for path, experts in self._blocks().items()
            for number in range(len(experts))
            for name in _names(path, number, _modules(experts.expert(number)))
        }
        in_files = self.files.expert_weights()
        check_names(weights_file(self.files.source), known - in_files, in_files - known)

    def idle_weights(self) -> dict[str, Tensor]:
        """Return the weights of the idle experts by name: what the model's `state_dict` lacks."""
        weights: dict[str, Tensor] = {}
        for number in sorted(self.idle):
            for path, experts in self._blocks().items():
                place = experts.idle(number)
                names = _names(path, number, place.blueprint)
                if place.waiting is None:
                    weights |= self._read(list(names))
                else:
                    weights |= {name: place.waiting.state_dict()[own] for name, own in names.items()}
        return {name: weight.to(self._model.dtype) for name, weight in weights.items()}

    def bytes_per_expert(self) -> int:
        """Return the memory that one expert takes, over all blocks."""
        total = 0
        for experts in self._blocks().values():
            weights = _modules(experts.expert(0)).parameters()
            total += sum(weight.numel() * weight.element_size() for weight in weights)
        return total

    def _blocks(self) -> dict[str, Experts]:
        """Return the experts of each block, by the path of the module that holds them."""
        modules = self._model.named_modules()
        return {name: module for name, module in modules if isinstance(module, Experts)}

    def _enter(self, number: int) -> None:
        """Count one more user of an expert, which is loaded first if it is idle."""
        if self._count_user(number):
            return
        with self._loading:  # users of other experts need not wait
            if self._count_user(number):
                return
            with self._lock:
                self._make_room((self.limit or 1) - 1)
            self._restore(number, users=1)

    def _count_user(self, number: int) -> bool:
        with self._lock:
            if number not in self._users:
                return False
            self._users[number] = self._users.pop(number) + 1
            return True

    def _make_room(self, left: int) -> None:
        """Remove unused experts until at most `left` are in memory."""
        unused = [number for number, users in self._users.items() if not users]
        for number in unused[: max(len(self._users) - left, 0)]:
            self._remove(number, DISK)

    def _remove(self, number: int, waiting: str) -> None:
        """Replace an expert by an `IdleExpert` in every block."""
        for experts in self._blocks().values():
            experts[number] = _idle(experts.expert(number), waiting)
        self._users.pop(number, None)

    @torch.inference_mode(False)  # an expert that comes while texts are encoded can be trained later
    def _restore(self, number: int, users: int = 0) -> None:
        """Put an idle expert back into every block."""
        for path, experts in self._blocks().items():
            place = experts.idle(number)
            expert = place.waiting
            if expert is None:
                expert = copy.deepcopy(place.blueprint)
                names = _names(path, number, expert)
                read = self._read(list(names))
                state = {names[name]: weight for name, weight in read}
                self._check_shapes(number, expert.state_dict(), state)
                state = {name: weight.to(self._model.dtype) for name, weight in state.items()}
                expert.load_state_dict(state, assign=True)
            experts[number] = expert.to(self._model.device).train(self._model.training)
        with self._lock:
            self._users[number] = users

    def _read(self, names: list[str]) -> Iterator[tuple[str, Tensor]]:
        if self.files is None:
            raise UsageError("save the model and load it again first: its idle experts are in no file")
        return self.files.read(names)

    def _check_shapes(self, number: int, known: dict[str, Tensor], read: dict[str, Tensor]) -> None:
        other = {
            name
            for name, one in read.items()
            if one.shape != known[name].shape or not one.is_floating_point()
        }
        if other:
            assert self.files is not None
            file, name = weights_file(self.files.source), self._model.config.experts[number]
            raise InputError(
                f"{file}: weights of expert {name!r} have another shape or kind of number than the config "
                f"says: {named(other)}; {REMEDY}"
            )

    def _check_unchanged(self, dropped: Sequence[int]) -> None:
        """Refuse to drop weights that are in no file."""
        for number in dropped:
            for path, experts in self._blocks().items():
                place = experts.expert(number)
                expert = place.waiting if isinstance(place, IdleExpert) else place
                if expert is None:
                    continue
                weights, names = expert.state_dict(), _names(path, number, expert)
                for name, weight in self._read(list(names)):
                    current = weights[names[name]]
                    if not torch.equal(current.cpu(), weight.to(current.dtype)):
                        raise UsageError(
                            f"expert {self._model.config.experts[number]!r} has changed since it was loaded, "
                            "and dropping it would lose that; save the model, or keep idle experts with "
                            "idle='cpu'"
                        )


def _modules(expert: nn.ModuleDict) -> nn.ModuleDict:
    """Return the expert's modules, without weights if it is idle."""
    return expert.blueprint if isinstance(expert, IdleExpert) else expert


def _names(path: str, number: int, expert: nn.ModuleDict) -> dict[str, str]:
    """Return a weight's name in the model -> its name in the expert."""
    return {f"{path}.{number}.{name}": name for name in expert.state_dict()}


def _idle(expert: nn.ModuleDict, waiting: str) -> IdleExpert:
    """Return the placeholder of an expert that waits on disk or CPU."""
    loaded = expert.waiting if isinstance(expert, IdleExpert) else expert
    if loaded is None:
        assert isinstance(expert, IdleExpert)
        return expert  # it waits on disk
    if waiting == CPU:
        moved = loaded.to("cpu")
        return IdleExpert(moved, moved)
    # The memo replaces each weight by an empty one, so that the copy holds none of them.
    empty = {id(one): nn.Parameter(torch.empty_like(one, device="meta")) for one in loaded.parameters()}
    return IdleExpert(copy.deepcopy(loaded, empty))


def _leave_mapping(model: nn.Module) -> None:
    """Copy the weights of a model that was loaded whole, once a part of them is dropped.

    They all lie in one mapping of the file, which lives as long as any of them, dropped experts included.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu":
            parameter.data = parameter.data.clone()

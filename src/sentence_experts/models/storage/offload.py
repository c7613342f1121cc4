"""Experts in memory only while their routes are in use: idle ones wait on disk or CPU (MoTE, section 3.1).

A text meets one expert, so a model in use for one route needs no more than a dense model's memory. An idle
expert's place in each block is held by an `IdleExpert` without weights; from the disk its weights come back
out of the model's safetensors files, of which nothing else is read.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.layers.experts import Experts, IdleExpert
from sentence_experts.models.routing.router_kinds import router_kind
from sentence_experts.models.storage.shards import WeightFiles

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder

DISK, CPU = "disk", "cpu"


def use_routes(encoder: ExpertEncoder, routes: Sequence[str], idle: str, files: WeightFiles | None) -> None:
    """Bring the experts of these routes into memory, and send all others away.

    Args:
        encoder: the model, changed in place.
        routes: names of routes, or of experts.
        idle: "disk": the others are dropped, to be read again; "cpu": they are moved to the CPU's memory.
        files: where the model's weights lie; None if it was not loaded.

    Raises:
        RouteError: no such route or expert.
        UsageError: texts choose their experts, `idle` is not known, or what is dropped would be lost.
        InputError: an expert cannot be read.
    """
    model: Any = encoder.routed_model
    if idle not in (DISK, CPU):
        raise UsageError(f"idle {idle!r}: experts wait on {DISK} or {CPU}")
    if router_kind(model.config).is_learned and model.config.expert_layers:
        raise UsageError("in this model what a text says chooses its experts, so all of them must be loaded")
    wanted = experts_of_names(encoder, routes)
    others = set(range(len(encoder.experts))) - wanted
    blocks = dict(expert_blocks(model))
    if not blocks:
        return  # a dense control: there is nothing to send away
    if idle == DISK:
        _check_unchanged(encoder, blocks, sorted(others), files)
    was_whole = not model.idle_experts
    # The idle first, so that the memory never holds more than it must.
    for number in sorted(others):
        for experts in blocks.values():
            experts[number] = sent_away(experts.expert(number), idle)
    model.idle_experts |= others
    if idle == DISK and was_whole and others:
        _leave_mapping(model)
    for number in sorted(wanted & model.idle_experts):
        bring(model, blocks, number, files)
        model.idle_experts -= {number}


def experts_of_names(encoder: ExpertEncoder, names: Sequence[str]) -> set[int]:
    """The experts behind names of routes, experts, or prompts that begin with a route.

    Raises:
        RouteError: an unknown name, or none.
    """
    routes = {route.name: route.expert for route in encoder.routes}
    found = set()
    for name in [names] if isinstance(names, str) else names:
        prompt = encoder.prompts.get(name) or ""
        behind = [route.expert for route in encoder.routes if prompt.startswith(route.text)]
        if name in routes:
            found.add(routes[name])
        elif name in encoder.experts:
            found.add(encoder.experts.index(name))
        elif behind:
            found.add(behind[0])
        else:
            known = ", ".join(dict.fromkeys([*routes, *encoder.experts]))
            raise RouteError(f"no route is named {name!r}; routes that can be loaded: {known}")
    if not found:
        raise RouteError("name at least one route to load")
    return found


def expert_blocks(model: nn.Module) -> Iterator[tuple[str, Experts]]:
    """The experts of each block, by the path of the module that holds them."""
    for name, module in model.named_modules():
        if isinstance(module, Experts):
            yield name, module


def _keys(path: str, number: int, expert: nn.ModuleDict) -> dict[str, str]:
    """A weight's name in the model's files -> its name in the expert."""
    return {f"{path}.{number}.{name}": name for name in expert.state_dict()}


def sent_away(expert: nn.ModuleDict, idle: str) -> IdleExpert:
    """What holds an expert's place while it waits on disk or CPU."""
    held = expert.kept if isinstance(expert, IdleExpert) else expert
    if held is None:
        assert isinstance(expert, IdleExpert)
        return expert  # on disk already
    if idle == CPU:
        kept = held.to("cpu")
        return IdleExpert(kept, kept)
    # Told what each weight becomes, the copy holds none of them.
    empty = {id(one): nn.Parameter(torch.empty_like(one, device="meta")) for one in held.parameters()}
    return IdleExpert(copy.deepcopy(held, empty))


def bring(model: Any, blocks: Mapping[str, Experts], number: int, files: WeightFiles | None) -> None:
    """Put one expert back into every block."""
    placed = {path: experts.expert(number) for path, experts in blocks.items()}
    for path, place in placed.items():
        assert isinstance(place, IdleExpert)
        expert = place.kept
        if expert is None:
            if files is None:
                raise UsageError("the model was not loaded from files; its idle experts are nowhere to read")
            expert = copy.deepcopy(place.blueprint)
            keys = _keys(path, number, expert)
            state = {keys[key]: tensor.to(model.dtype) for key, tensor in files.read(list(keys))}
            expert.load_state_dict(state, assign=True)
        blocks[path][number] = expert.to(model.device).train(model.training)


def _leave_mapping(model: nn.Module) -> None:
    """Copy the weights of a model that was loaded whole, once a part of them is dropped.

    They all lie in one mapping of the file, which lives as long as any of them, dropped experts included.
    """
    for parameter in model.parameters():
        if parameter.device.type == "cpu":
            parameter.data = parameter.data.clone()


def _check_unchanged(
    encoder: ExpertEncoder, blocks: Mapping[str, Experts], dropped: Sequence[int], files: WeightFiles | None
) -> None:
    """Refuse to drop weights that are in no file."""
    for number in dropped:
        for path, experts in blocks.items():
            place = experts.expert(number)
            expert = place.kept if isinstance(place, IdleExpert) else place
            if expert is None:
                continue
            if files is None:
                raise UsageError("save the model and load it again first: its idle experts are in no file")
            weights = expert.state_dict()
            keys = _keys(path, number, expert)
            for key, tensor in files.read(list(keys)):
                held = weights[keys[key]]
                if not torch.equal(held.cpu(), tensor.to(held.dtype)):
                    raise UsageError(
                        f"expert {encoder.experts[number]!r} has changed since it was loaded, and dropping "
                        "it would lose that; save the model, or keep idle experts with idle='cpu'"
                    )

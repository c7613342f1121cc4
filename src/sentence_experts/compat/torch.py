"""Uses of torch that its documentation does not promise."""

from __future__ import annotations

import pickle
from functools import cache

import torch


def give_children(module: torch.nn.Module, **changed: torch.nn.Module) -> None:
    """Give a shallow copy of a module children of its own: those that it has, but for the `changed` ones.

    A module keeps its children in a dict, which a shallow copy shares.
    """
    module._modules = {**module._modules, **changed}


def is_recording() -> bool:
    """Whether torch records a graph with fixed steps (`torch.jit.trace`, `torch.compile`, `torch.export`)."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined]
    return tracing or torch.compiler.is_compiling()


def changes_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place (an optimizer's step is one change).

    autograd counts this for itself, to notice that a value saved for the backward pass is gone.
    """
    return 0 if tensor.is_inference() else tensor._version


@cache
def changes_when_unpickled() -> int:
    """Return what `changes_of` gives for a parameter that was just unpickled."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    return changes_of(pickle.loads(pickle.dumps(parameter)))

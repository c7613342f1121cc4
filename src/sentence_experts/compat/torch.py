"""Uses of torch that its documentation does not promise."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, TypeVar
from weakref import ref

import numpy as np
import torch
from torch.autograd.graph import increment_version
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

M = TypeVar("M", bound=torch.nn.Module)
_SAMPLED = 64  # elements of each weight


def share_weights(module: M, **changed: torch.nn.Module) -> M:
    """Return a module with the children of another, but for the `changed` ones; its attributes are its own.

    Cached properties are left out, since they may depend on what is changed. A module keeps its children in a
    dict, which `copy.copy` would share.
    """
    kind = type(module)
    other = object.__new__(kind)
    other.__dict__.update(
        (name, value)
        for name, value in vars(module).items()
        if not isinstance(getattr(kind, name, None), cached_property)
    )
    other._modules = {**module._modules, **changed}
    return other


def hide(module: torch.nn.Module, **attributes: Any) -> None:
    """Set attributes past `Module.__setattr__`, so that modules among them do not count as children."""
    module.__dict__.update(attributes)


def replace_forward(module: torch.nn.Module, forward: Callable[..., Any]) -> None:
    """Put another function in the place of a module's `forward`, which `type(module).forward` still is.

    Unlike a hook it also runs where a library calls `forward` itself; copies of the module take it along.
    """
    module.forward = forward


def is_recording() -> bool:
    """Return whether torch records a graph (`torch.jit.trace`, `torch.compile`, `torch.export`)."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined]
    return tracing or torch.compiler.is_compiling()


def changes_of(tensor: torch.Tensor) -> int:
    """Return the number of times that a tensor was changed in place (an optimizer's step is one change).

    autograd counts this for itself, to notice that a value saved for the backward pass is gone.
    """
    return 0 if tensor.is_inference() else tensor._version


def plain_tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a state, by name; quantized layers hold theirs in tuples, among numbers."""
    for name, value in sorted(state.items()):
        if isinstance(value, tuple):
            yield from plain_tensors({f"{name}.{number}": each for number, each in enumerate(value)})
        elif isinstance(value, torch.Tensor):
            yield name, value.dequantize() if value.is_quantized else value


def _count_changes(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Count a step as a change of its weights, as fused optimizers, the default of trainers, do not."""
    weights = (weight for group in optimizer.param_groups for weight in group["params"])
    for weight in weights:
        # A step may have freed its gradients already, but keeps a state of each weight that it changed.
        if (weight.grad is not None or weight in optimizer.state) and not weight.is_inference():
            increment_version(weight)


register_optimizer_step_post_hook(_count_changes)


def sample_weights(weights: Mapping[str, torch.Tensor]) -> dict[str, tuple[torch.dtype, bytes]]:
    """Return the number type of each weight and the bytes of up to `_SAMPLED` elements, from all its parts.

    Weights without plain memory, such as those on no device (meta), are left out.
    """
    samples = dict[str, tuple[torch.dtype, bytes]]()
    for name, weight in weights.items():
        is_plain = type(weight) in (torch.Tensor, torch.nn.Parameter) and weight.layout is torch.strided
        has_memory = is_plain and not (weight.is_meta or weight.is_quantized)
        if has_memory and weight.numel() and weight.untyped_storage().nbytes():
            flat = weight.detach().reshape(-1)
            if weight.dtype.itemsize == 1:  # since some of these number types cannot be indexed
                flat = flat.view(torch.uint8)
            some = flat[torch.as_tensor(_places_of(len(flat)), device=weight.device)]
            samples[name] = (weight.dtype, some.cpu().view(torch.uint8).numpy().tobytes())
    return samples


@cache
def _places_of(size: int) -> np.ndarray:
    """Return `_SAMPLED` places in as many equal parts of a weight, each elsewhere in its part.

    At equal steps they could all lie in one column of a matrix.
    """
    count = min(size, _SAMPLED)
    part = np.arange(count)
    return part * size // count + part * 2654435761 % (size // count)


@cache
def changes_when_unpickled() -> int:
    """Return the number that `changes_of` gives for a parameter that was just unpickled."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    return changes_of(pickle.loads(pickle.dumps(parameter)))


def _stays(name: str) -> bool:
    return False


class KnownWeights:
    """The weights of a model as they are now; copied and pickled along with the model.

    A weight is known by its identity and by the number of its changes in place; and by some of its elements,
    since changes of `weight.data`, as of a LoRA that is merged, are not counted.
    """

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor] | None,
        may_go: Callable[[str], bool] | None = None,
        usual_changes: int = 0,
    ) -> None:
        """Note the weights by their names; None stands for weights that have changed already.

        Those whose names `may_go` accepts may go, and come back with `usual_changes` at most; by default all
        stay.
        """
        self._may_go, self._usual_changes = may_go or _stays, usual_changes
        self._known: dict[str, tuple[ref[torch.Tensor], int]] | None = None
        if weights is not None:
            self._known = {name: (ref(weight), changes_of(weight)) for name, weight in weights.items()}
            self._samples = sample_weights(weights)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the call that notes the copies of the weights, which count their changes from zero."""
        return KnownWeights, (self._unchanged(), self._may_go, changes_when_unpickled())

    def are(self, weights: Mapping[str, torch.Tensor]) -> bool:
        """Return whether these are still the weights, unchanged."""
        known = self._unchanged()
        if known is None or not all(name in weights or self._may_go(name) for name in known):
            return False
        return all(
            weight is known.get(name) or (self._may_go(name) and changes_of(weight) <= self._usual_changes)
            for name, weight in weights.items()
        )

    def _have_samples(self, weights: Mapping[str, torch.Tensor]) -> bool:
        """Return whether the sampled elements are as they were; other number types are not compared."""
        samples = sample_weights({name: weight for name, weight in weights.items() if name in self._samples})
        return all(
            sample[0] != self._samples[name][0] or sample == self._samples[name]
            for name, sample in samples.items()
        )

    def _unchanged(self) -> dict[str, torch.Tensor] | None:
        """Return the weights that are in memory; None if one has changed, or has gone and may not."""
        if self._known is None:
            return None
        weights = {}
        for name, (weak, changes) in self._known.items():
            if (weight := weak()) is not None and changes_of(weight) == changes:
                weights[name] = weight
            elif weight is not None or not self._may_go(name):
                return None
        return weights if self._have_samples(weights) else None


class LightMeta(TorchFunctionMode):
    """A mode in which computations on no device (meta), as when a model is built, cost nothing.

    torch runs `normal_`, `arange` and `empty_like` on meta in Python, behind imports of its compiler and of
    sympy that take a second. Their values are never seen.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function: as usual, unless it only fills a tensor on meta."""
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            tensor = args[0] if args else given["tensor"]
            if tensor.is_meta:
                return tensor
        if func is torch.arange and str(given.get("device")) == "meta":
            return func(*args, **{**given, "device": "cpu"}).to("meta")
        if func is torch.empty_like and args[0].is_meta:
            like = {"dtype": args[0].dtype, "device": args[0].device}
            return torch.empty(args[0].shape, **{**like, **given})
        return func(*args, **given)

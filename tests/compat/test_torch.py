"""Assumptions of the package about torch."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from typing import Any

import pytest
import torch

from sentence_experts.compat.torch import (
    changes_of,
    changes_when_unpickled,
    hide,
    is_recording,
    replace_forward,
    sample_weights,
    share_weights,
)


@pytest.mark.parametrize("settings", [{}, {"fused": True}, {"foreach": True}])
def test_a_step_of_an_optimizer_is_counted_as_a_change(settings: dict[str, bool]) -> None:
    layer = torch.nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    before, frozen = changes_of(layer.weight), changes_of(layer.bias)
    layer(torch.ones(1, 2)).sum().backward()
    torch.optim.AdamW(layer.parameters(), **settings).step()
    assert changes_of(layer.weight) > before
    assert changes_of(layer.bias) == frozen


class FreeingGradients(torch.optim.AdamW):
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        self.zero_grad()
        return loss


def test_steps_that_free_their_gradients_are_counted_and_weights_without_any_are_not() -> None:
    used, unused = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    weights = [*used.parameters(), *unused.parameters()]
    freeing = FreeingGradients(weights, fused=True)
    hooked = torch.optim.AdamW(weights, fused=True)
    hooked.register_step_post_hook(lambda optimizer, *_: optimizer.zero_grad())
    for optimizer in (freeing, hooked):
        before = [changes_of(weight) for weight in weights]
        used(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        changed = [changes_of(weight) > known for weight, known in zip(weights, before, strict=True)]
        assert changed == [True, True, False, False]


SHAPES = [(3072, 768), (768, 768), (64, 1023), (192, 385), (576, 577), (30522, 768), (65,), (100,), (1,)]


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_lie_in_all_rows_and_columns(shape: tuple[int, ...]) -> None:
    places = torch.arange(math.prod(shape), dtype=torch.int32).reshape(shape)
    dtype, content = sample_weights({"weight": places})["weight"]
    sampled = torch.frombuffer(bytearray(content), dtype=dtype)
    assert len(sampled.unique()) == min(places.numel(), 64)
    if len(shape) == 2:
        for axis, at in ((shape[0], sampled // shape[1]), (shape[1], sampled % shape[1])):
            parts = at.to(torch.float64) / axis
            assert len(at.unique()) > 40
            assert parts.min() < 0.1
            assert parts.max() > 0.9


@pytest.mark.parametrize("name", ["bool", "uint16", "float8_e4m3fn", "float4_e2m1fn_x2", "uint4"])
def test_weights_of_any_number_type_are_sampled(name: str) -> None:
    if not hasattr(torch, name):
        pytest.skip("a number type of newer versions of torch")
    weight = torch.empty(100, dtype=getattr(torch, name))
    assert len(sample_weights({"weight": weight})["weight"][1]) == 64 * weight.dtype.itemsize


@pytest.mark.parametrize("use", [lambda weight: weight.sum(), lambda weight: weight.double(), torch.clone])
def test_reading_is_no_change(use) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    before = changes_of(weight)
    use(weight)
    assert changes_of(weight) == before


def test_copies_begin_with_known_numbers_of_changes() -> None:
    layer = torch.nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.add_(1)
    assert changes_of(pickle.loads(pickle.dumps(layer)).weight) == changes_when_unpickled()
    assert changes_of(copy.deepcopy(layer).weight) == 0


def test_an_exported_graph_is_noticed() -> None:
    class Noting(torch.nn.Module):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value + 1 if is_recording() else value

    exported = torch.export.export(Noting(), (torch.ones(1),)).module()
    assert exported(torch.ones(1)).item() == 2


def test_a_module_with_the_same_weights_has_children_and_attributes_of_its_own() -> None:
    class Pair(torch.nn.Sequential):
        @functools.cached_property
        def first(self) -> torch.nn.Module:
            return self[0]

    model = Pair(torch.nn.Linear(2, 2), torch.nn.Identity())
    assert model.first is model[0]
    other = share_weights(model, **{"0": torch.nn.Identity()})
    other.training = False
    assert model.training
    assert other.first is other[0]
    assert other(torch.ones(1, 2)).tolist() == [[1, 1]]
    assert isinstance(model[0], torch.nn.Linear)
    assert other[1] is model[1]


def test_what_is_hidden_in_a_module_is_no_child_and_is_copied_with_it() -> None:
    model = torch.nn.Linear(2, 2)
    hide(model, spare=torch.nn.Linear(2, 2))
    assert list(model.modules()) == [model]
    assert list(model.state_dict()) == ["weight", "bias"]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(other.spare, torch.nn.Linear)
        assert other.spare is not model.spare


class Doubled:
    """A `forward` in front of a module's own."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return 2 * type(self.module).forward(self.module, value)


def test_a_replaced_forward_runs_for_every_caller_and_in_copies() -> None:
    model = torch.nn.Linear(2, 2)
    ones = torch.ones(1, 2)
    twice = 2 * model(ones)
    replace_forward(model, Doubled(model))
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert each.forward.module is each
        assert torch.equal(each(ones), twice)
        assert torch.equal(each.forward(ones), twice)
        assert list(each.state_dict()) == ["weight", "bias"]

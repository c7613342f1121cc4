"""What the package takes for granted about torch."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from sentence_experts.compat.torch import changes_of, changes_when_unpickled


def test_a_step_of_an_optimizer_is_counted_as_a_change() -> None:
    layer = torch.nn.Linear(2, 2)
    before = changes_of(layer.weight)
    layer(torch.ones(1, 2)).sum().backward()
    torch.optim.AdamW(layer.parameters()).step()
    assert changes_of(layer.weight) > before


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

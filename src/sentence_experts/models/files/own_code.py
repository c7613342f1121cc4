"""Marks of models with classes, functions or hooks that no library has, by what they do.

The attributes of such code do not tell what decides its vectors: some are settings, others counters and
caches. So two states of such a model are told apart by the vectors of a few texts, within one process alone.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_experts.errors import SentenceExpertsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

_TEXTS = (
    "Rice",
    "How do 12 roots of RICE grow in dry soil?",
    "Réponse d'une plante: a longer text, whose words say (among others) that 3.5% of all seeds sleep; " * 40,
)
_NEAR = 1e-5  # differences that are those of another batch or thread, as shares of the largest number

# The vectors of `_TEXTS` of each model so far, and of each state of one, with its mark.
_states: list[tuple[list[NDArray[Any]], str]] = []


def mark_own_code(model: SentenceTransformer) -> str:
    """Return a mark of a model with code of the user's own, the same while its vectors are; "" without such.

    In another process it is another one.
    """
    from sentence_experts.compat.transformers import has_own_code  # imports torch

    if not has_own_code(model):
        return ""
    with _kept_state(model):
        vectors = [_encode(model, name) for name in (None, *model.prompts)]
    for known, mark in _states:
        if len(known) == len(vectors) and all(map(_are_near, known, vectors)):
            return mark
    _states.append((vectors, uuid.uuid4().hex))
    return _states[-1][1]


def _encode(model: SentenceTransformer, prompt_name: str | None) -> NDArray[Any]:
    try:
        found = model.encode([*_TEXTS], prompt_name=prompt_name, show_progress_bar=False)
    except SentenceExpertsError:  # a route that is not in memory, or none by default
        return np.zeros(0)
    vectors: NDArray[Any] = np.asarray(found, dtype=np.float64)
    return vectors


def _are_near(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.shape != other.shape:
        return False
    most = np.abs(np.nan_to_num(one)).max(initial=0.0)
    return bool(np.allclose(one, other, rtol=0.0, atol=_NEAR * most, equal_nan=True))


@contextmanager
def _kept_state(model: SentenceTransformer) -> Iterator[None]:
    """Leave whether layers are in training, and torch's random state, as they are."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    with torch.random.fork_rng(devices=[]):
        yield
    for module, mode in modes:
        module.training = mode

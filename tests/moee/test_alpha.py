from __future__ import annotations

import numpy as np
import pytest

from sentence_experts.errors import UsageError
from sentence_experts.moee.alpha import choose_alpha, part_cosines
from sentence_experts.moee.vectors import States

PAIRS = 60


def sides(seed: int) -> tuple[States, States]:
    generator = np.random.default_rng(seed)
    return tuple(
        States(*(generator.normal(size=(PAIRS, 8)).astype(np.float32) for _ in range(2))) for _ in range(2)
    )


def test_the_planted_alpha_is_found():
    first, second = sides(0)
    hidden, routing = part_cosines(first, second)
    for planted in (0.0, 0.5, 3.0):
        choice = choose_alpha(first, second, list(hidden + planted * routing))
        assert choice.alpha == planted
        assert choice.tried[planted] == pytest.approx(1)


def test_of_equally_good_ones_the_smallest():
    first, second = sides(1)
    still = (
        States(first.hidden, np.ones_like(first.routing)),
        States(second.hidden, np.ones_like(first.routing)),
    )
    assert choose_alpha(*still, list(range(PAIRS))).alpha == 0.0


@pytest.mark.parametrize("scores", [[1.0] * PAIRS, [1.0, 2.0]])
def test_too_little_to_choose_on(scores):
    first, second = sides(2)
    with pytest.raises(UsageError, match="alpha needs"):
        choose_alpha(first[: len(scores)], second[: len(scores)], scores)

"""The small language model that the project trained itself: routers that learned something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
from sentence_experts.moee.embedder import MoeEmbedder

MODEL = Path(__file__).parent / "tiny-olmoe"
TEXTS = [
    "The neurons in the cortex of the mouse fire when the animal moves.",
    "Mutations in the gene change how the protein binds to DNA.",
    "The virus infects cells of the host and spreads.",
    "A man is playing a guitar.",
    "Spikes were recorded from cells in the visual cortex of mice.",
]


@pytest.fixture(scope="module")
def embedder() -> MoeEmbedder:
    return MoeEmbedder(str(MODEL), prompt="none", device="cpu")


def test_every_expert_is_used_and_texts_differ(embedder):
    routing = embedder.states(TEXTS).routing.reshape(len(TEXTS), 4, 8)  # blocks, experts
    assert routing.sum(axis=2) == pytest.approx(1, abs=1e-5)
    tokens = MoeEmbedder(str(MODEL), prompt="none", tokens="mean", device="cpu").states(TEXTS).routing
    assert tokens.reshape(len(TEXTS), 4, 8).mean(axis=0).min() > 0.02
    apart = np.abs(routing[:, None] - routing[None]).max(axis=(2, 3))
    assert apart[~np.eye(len(TEXTS), dtype=bool)].min() > 0.05


@pytest.mark.realdata
def test_it_ranks_real_pairs_better_than_chance(embedder, real_data):
    pairs = RatedPairs.read(real_data / "eval" / "sts12.jsonl.gz")
    one = embedder.with_prompt("prompteol")
    first, second = (one.states(side[::6]) for side in (pairs.first, pairs.second))
    for part, least in (("hs", 0.3), ("rw", 0.2), ("sum", 0.3)):
        own = one.with_parts(part)
        scores = own.similarity_pairwise(own.combined(first), own.combined(second)).numpy()
        assert spearmanr(scores, pairs.scores[::6]).statistic > least

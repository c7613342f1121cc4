"""What `router_choices` says is what the model does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import sentence_experts
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.routes.sequence_router import SequenceRouter

NAMES = ["copd", "cvd", "skin cancer"]
PLAIN = ["the heart pumps blood", "lungs", "", "skin cancer grows slowly in the light of the lungs", "air"]


@pytest.fixture
def choosing(base: SentenceTransformer) -> sentence_experts.ExpertEncoder:
    """Two of four blocks choose, with weights that prefer no expert by much."""
    encoder = sentence_experts.extend(base, NAMES, layers="alternate", route="none", router="learned")
    generator = torch.Generator().manual_seed(0)
    for module in encoder.modules():
        if isinstance(module, SequenceRouter):
            module.weight.data = torch.randn(module.weight.shape, generator=generator)
    return encoder


def test_choices_are_those_of_the_forward_in_the_texts_order(
    choosing: sentence_experts.ExpertEncoder,
) -> None:
    found = choosing.router_choices(PLAIN, batch_size=2)
    logits = choosing[0].auto_model(**choosing.preprocess(PLAIN)).router_logits
    expected = torch.stack(logits, dim=1).detach()
    assert (found.experts, found.blocks) == (tuple(NAMES), (1, 3))
    assert np.allclose(found.logits, expected, atol=1e-4)
    assert np.allclose(found.probabilities, expected.softmax(dim=2), atol=1e-5)
    assert found.chosen.tolist() == expected.argmax(dim=2).tolist()
    assert choosing.router_choices([]).chosen.shape == (0, 2)


def test_a_route_is_read_before_the_text(bases: dict[str, SentenceTransformer]) -> None:
    encoder = sentence_experts.extend(bases["bert"], NAMES, router="learned")
    named = encoder.router_choices(PLAIN, prompt_name="cvd")
    in_text = encoder.router_choices([f"[CVD]{text}" for text in PLAIN])
    assert np.array_equal(named.logits, in_text.logits)
    with pytest.raises(RouteError, match="begin with no known route"):
        encoder.router_choices(PLAIN)
    with pytest.raises(RouteError, match="'heart'; known routes"):
        encoder.router_choices(PLAIN, prompt_name="heart")


def test_a_model_with_routes_has_no_router_choices(bases: dict[str, SentenceTransformer]) -> None:
    with pytest.raises(UsageError, match="route chooses"):
        sentence_experts.extend(bases["bert"], NAMES).router_choices(PLAIN)

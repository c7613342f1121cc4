"""Learned routers: each block chooses from the text, whatever the padding and the company."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

import sentence_experts
from helpers.features import features_of
from helpers.routers import NAMES, PLAIN, spread_routers
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.files.saving import save
from sentence_experts.models.layers.experts import Experts
from sentence_experts.models.routes.sequence_router import SequenceRouter


@pytest.fixture
def choosing(base: SentenceTransformer, scatter: Callable[..., SentenceTransformer]) -> SentenceTransformer:
    """Experts that differ, and routers that send `PLAIN` to all of them."""
    encoder = scatter(sentence_experts.extend(base, NAMES, route="none", router="learned", expert_norms=True))
    return spread_routers(encoder, PLAIN)


def choices(encoder: SentenceTransformer, texts: list[str]) -> list[list[int]]:
    """The expert of each text in each block."""
    logits = encoder[0].auto_model(**features_of(encoder, texts)).router_logits
    return torch.stack(logits, dim=1).argmax(dim=2).tolist()


def test_the_routers_of_these_tests_use_every_expert(choosing: SentenceTransformer) -> None:
    expected = [[(row + block) % 3 for block in range(4)] for row in range(len(PLAIN))]
    assert choices(choosing, PLAIN) == expected


def test_logits_are_the_weights_times_the_mean_state_of_each_block(choosing: SentenceTransformer) -> None:
    model = choosing[0].auto_model
    features = features_of(choosing, PLAIN)
    with torch.no_grad():
        output = model(**features, output_hidden_states=True)
    routers = [module for module in model.modules() if isinstance(module, SequenceRouter)]
    assert len(output.router_logits) == len(routers) == 4
    for hidden, router, logits in zip(output.hidden_states, routers, output.router_logits, strict=False):
        for row, length in enumerate(features["attention_mask"].sum(1).tolist()):
            state = [float(hidden[row, :length, unit].sum()) / length for unit in range(hidden.shape[2])]
            for expert, weights in enumerate(router.weight.tolist()):
                by_hand = sum(weight * value for weight, value in zip(weights, state, strict=True))
                assert float(logits[row, expert]) == pytest.approx(by_hand, abs=1e-4)


def test_the_highest_logit_chooses_the_expert(
    base: SentenceTransformer, scatter: Callable[..., SentenceTransformer]
) -> None:
    encoder = scatter(sentence_experts.extend(base, NAMES, layers=[1], route="none", router="learned"))
    spread_routers(encoder, PLAIN)
    free = encoder.encode(PLAIN)
    enforced = [encoder.encode(PLAIN, expert_ids=expert) for expert in range(3)]
    for row in range(len(PLAIN)):
        distances = [np.abs(free[row] - vectors[row]).max() for vectors in enforced]
        assert [distance < 1e-6 for distance in distances] == [expert == row % 3 for expert in range(3)]


def _gradients(encoder: SentenceTransformer, value: Tensor) -> dict[str, Tensor]:
    encoder.zero_grad(set_to_none=True)
    value.backward()
    return {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}


def _router_loss(logits: tuple[Tensor, ...]) -> Tensor:
    targets = torch.arange(logits[0].shape[0]) % logits[0].shape[1]
    return torch.stack([nn.functional.cross_entropy(one, targets) for one in logits]).mean()


def test_the_vector_teaches_the_chosen_expert_and_the_router_loss_the_routers(
    choosing: SentenceTransformer,
) -> None:
    model = choosing[0].auto_model
    features = features_of(choosing, PLAIN[:1])
    output = model(**features)
    weights = torch.linspace(-1, 1, output.last_hidden_state.numel())
    from_vector = _gradients(choosing, (output.last_hidden_state.flatten() * weights).sum())
    chosen = choices(choosing, PLAIN[:1])[0]
    experts = {
        (int(block), int(expert))
        for name in from_vector
        for before, _, after in [name.partition(".experts.")]
        if after
        for block, expert in [(before.rsplit(".", 1)[1], after.split(".")[0])]
    }
    assert experts == set(enumerate(chosen))
    assert not any(".router." in name for name in from_vector)

    from_router = _gradients(choosing, _router_loss(model(**features_of(choosing, PLAIN)).router_logits))
    routers = [name for name, _ in choosing.named_parameters() if ".router." in name]
    assert len(routers) == 4
    assert all(from_router[name].abs().sum() > 0 for name in routers)


@pytest.fixture
def switching(base: SentenceTransformer, scatter: Callable[..., SentenceTransformer]) -> SentenceTransformer:
    """As `choosing`, with scaled outputs, and experts in one block."""
    settings = {"layers": [1], "route": "none", "router": "switch", "expert_norms": True}
    return spread_routers(scatter(sentence_experts.extend(base, NAMES, **settings)), PLAIN)


@pytest.mark.parametrize("given", [None, [2, 0, 1, 0, 2, 1, 1]])
def test_switch_scales_the_mlp_by_the_probability(
    switching: SentenceTransformer, given: list[int] | None
) -> None:
    """By the probability of the chosen expert, or of the one that is given in its place."""
    named = {} if given is None else {"expert_ids": given}
    vectors = switching.encode(PLAIN, **named)
    model = switching[0].auto_model
    (logits,) = model(**features_of(switching, PLAIN)).router_logits
    ids = logits.argmax(1) if given is None else torch.tensor(given)
    probabilities = logits.softmax(1)[torch.arange(len(PLAIN)), ids]
    model.config.router = "learned"  # with the same weights, and the factor by hand
    (experts,) = (module for module in model.modules() if isinstance(module, Experts))
    for row, (expert, probability) in enumerate(zip(ids.tolist(), probabilities, strict=True)):
        module = experts.expert(expert)[experts.last]
        hook = module.register_forward_hook(lambda *seen, factor=probability: seen[2] * factor)
        by_hand = switching.encode(PLAIN[row], expert_ids=expert)
        hook.remove()
        assert np.abs(vectors[row] - by_hand).max() < 1e-5
        assert np.abs(vectors[row] - switching.encode(PLAIN[row], expert_ids=expert)).max() > 1e-4


def test_switch_teaches_the_router_by_the_vector(switching: SentenceTransformer) -> None:
    hidden = switching[0].auto_model(**features_of(switching, PLAIN)).last_hidden_state
    gradients = _gradients(switching, (hidden.flatten() * torch.linspace(-1, 1, hidden.numel())).sum())
    (router,) = (gradient for name, gradient in gradients.items() if ".router." in name)
    assert router.abs().sum() > 0


def test_switch_is_saved_and_its_vectors_are_no_dense_models(
    switching: SentenceTransformer, tmp_path: Path
) -> None:
    from sentence_experts.models.dense import average_experts, export_route

    save(switching, tmp_path / "model")
    loaded = sentence_experts.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.encode(PLAIN), switching.encode(PLAIN))
    for refused in (lambda: export_route(loaded, "copd"), lambda: average_experts(loaded)):
        with pytest.raises(UsageError, match="scaled by the router's probability"):
            refused()


def test_the_logits_are_computed_in_full_precision(choosing: SentenceTransformer) -> None:
    router = next(each for each in choosing[0].auto_model.modules() if isinstance(each, SequenceRouter))
    seen: list[tuple[Any, torch.Tensor]] = []
    watched = router.register_forward_hook(lambda _, given, logits: seen.append((given, logits)))
    with torch.autocast("cpu", torch.bfloat16):
        choosing[0].auto_model(**features_of(choosing, PLAIN))
    watched.remove()
    given, logits = seen[0]
    assert logits.dtype == torch.float32
    assert torch.allclose(logits, router(*given), atol=1e-5)


def test_a_model_without_routes_names_none(choosing: SentenceTransformer) -> None:
    assert choosing.routes == ()
    with pytest.raises(RouteError, match=r"'copd'.*learned routers choose"):
        choosing.encode(PLAIN, prompt_name="copd")
    with pytest.raises(UsageError, match="the experts are"):
        choosing.encode(PLAIN, expert_ids=3)


def test_a_mask_of_another_shape_hides_the_padding(choosing: SentenceTransformer) -> None:
    features = features_of(choosing, PLAIN[:2])
    mask = features["attention_mask"]
    square = (mask[:, None, :, None] * mask[:, None, None, :]).bool()
    with pytest.raises(UsageError, match="padding"):
        choosing[0].auto_model(input_ids=features["input_ids"], attention_mask=square)


def test_choices_are_those_of_the_forward_in_the_texts_order(
    choosing: SentenceTransformer,
) -> None:
    found = choosing.router_choices(PLAIN, batch_size=2)
    logits = choosing[0].auto_model(**features_of(choosing, PLAIN)).router_logits
    expected = torch.stack(logits, dim=1).detach()
    assert (found.experts, found.blocks) == (tuple(NAMES), (0, 1, 2, 3))
    assert np.allclose(found.logits, expected, atol=1e-4)
    assert np.allclose(found.probabilities, expected.softmax(dim=2), atol=1e-5)
    assert found.chosen.tolist() == expected.argmax(dim=2).tolist()
    assert choosing.router_choices([]).chosen.shape == (0, 4)
    assert choosing.router_choices(PLAIN[0]).chosen.tolist() == found.chosen[:1].tolist()
    prompted = copy.copy(choosing)
    prompted.prompts, prompted.default_prompt_name = {"q": "query: "}, "q"
    found, expected = (
        prompted.router_choices(PLAIN),
        choosing.router_choices([f"query: {each}" for each in PLAIN]),
    )
    assert np.allclose(found.logits, expected.logits, atol=1e-4)


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

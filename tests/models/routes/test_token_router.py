"""Token routers: each token goes to its own experts, whatever the padding and the company."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

import sentence_experts
from helpers.features import features_of
from helpers.routers import NAMES, PLAIN, sharpened
from sentence_experts.errors import UsageError
from sentence_experts.models.layers.experts import Experts
from sentence_experts.models.routes.kinds import RouterKind
from sentence_experts.models.routes.token_router import TokenRouter, token_balance_loss, token_loads_of


def routers_of(encoder: SentenceTransformer) -> list[TokenRouter]:
    return [module for module in encoder.modules() if isinstance(module, TokenRouter)]


@pytest.fixture
def choosing(base: SentenceTransformer, scatter: Callable[..., SentenceTransformer]) -> SentenceTransformer:
    """Experts that differ, norms included, and tokens that go to all of them."""
    return sharpened(
        scatter(sentence_experts.extend(base, NAMES, route="none", router="token", expert_norms=True))
    )


def _one_by_one(experts: Experts, hidden: Tensor, plan: Any, function: Callable) -> Tensor:
    """The mixture by its definition, token by token."""
    width = hidden.shape[-1]
    tokens, rows = hidden.reshape(-1, width), {}
    positions = range(len(tokens)) if plan.positions is None else plan.positions.tolist()
    expert_of_call = [number for number, start, end in plan.slices for _ in range(start, end)]
    for token, position in enumerate(positions):
        rows[position] = sum(
            weight * function(experts.expert(expert_of_call[call]), tokens[position : position + 1])[0]
            for call, weight in zip(plan.back[token].tolist(), plan.weights[token], strict=True)
        )
    padding = torch.zeros(width)
    return torch.stack([rows.get(row, padding) for row in range(len(tokens))]).view(hidden.shape)


def test_weights_and_choices_follow_the_definition(choosing: SentenceTransformer) -> None:
    """The first block's logits by hand, and every block's mixture by a loop over tokens."""
    model, features = choosing[0].auto_model, features_of(choosing, PLAIN)
    seen: list[tuple[Tensor, Tensor, Any]] = []
    plain_run = Experts.run

    def compared(self: Experts, hidden: Tensor, plan: Any, function: Callable) -> Tensor:
        result = plain_run(self, hidden, plan, function)
        if hasattr(plan, "weights"):
            seen.append((result, _one_by_one(self, hidden, plan, function), plan))
        return result

    Experts.run = compared  # type: ignore[method-assign]
    try:
        with torch.no_grad():
            output = model(**features)
    finally:
        Experts.run = plain_run  # type: ignore[method-assign]
    assert len(output.router_logits) == 4
    assert len(seen) in (4, 8)  # ModernBERT's experts meet the tokens twice a block, norm and MLP
    for result, by_hand, plan in seen:
        assert torch.allclose(result, by_hand, atol=1e-5)
        assert torch.allclose(plan.weights.sum(1), torch.ones(len(plan.weights)))
    plans = [plan for *_, plan in seen][:: len(seen) // 4]
    for logits, plan in zip(output.router_logits, plans, strict=True):
        numbers = [number for number, start, end in plan.slices for _ in range(start, end)]
        for token in range(len(logits)):
            powers = [float(power) for power in logits[token].exp()]
            chosen = [numbers[call] for call in plan.back[token].tolist()]
            assert chosen == sorted(range(3), key=lambda number: -powers[number])[:2]
            shares = [powers[number] / sum(powers[one] for one in chosen) for number in chosen]
            assert plan.weights[token].tolist() == pytest.approx(shares, abs=1e-5)
    used = {number for plan in plans for number, *_ in plan.slices}
    assert used == {0, 1, 2}


def test_one_expert_per_token_is_scaled_by_its_probability(
    base: SentenceTransformer, scatter: Callable[..., SentenceTransformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a switch transformer, so that the vectors teach the router; by hand, a factor per call."""
    settings = {"layers": [1], "route": "none", "router": "token", "top_k": 1, "expert_norms": True}
    encoder = sharpened(scatter(sentence_experts.extend(base, NAMES, **settings)))
    expected = encoder.encode(PLAIN)
    hidden = encoder[0].auto_model(**features_of(encoder, PLAIN)).last_hidden_state
    (hidden.flatten() * torch.linspace(-1, 1, hidden.numel())).sum().backward()
    (router,) = routers_of(encoder)
    assert router.weight.grad.abs().sum() > 0

    monkeypatch.setattr(RouterKind, "scales", lambda *_: False)
    assert np.abs(encoder.encode(PLAIN) - expected).max() > 1e-4
    best: list[Any] = []
    router.register_forward_hook(lambda *seen: best.append(seen[2].softmax(1).max(1)))
    (experts,) = (module for module in encoder.modules() if isinstance(module, Experts))
    for number in range(3):
        experts.expert(number)[experts.last].register_forward_hook(
            lambda *seen, own=number: seen[2] * best[-1].values[best[-1].indices == own][:, None]
        )
    assert np.abs(encoder.encode(PLAIN) - expected).max() < 2e-6


def test_only_the_router_and_the_chosen_experts_get_gradient(
    bases: dict[str, SentenceTransformer], scatter: Callable[..., SentenceTransformer]
) -> None:
    encoder = scatter(sentence_experts.extend(bases["bert"], NAMES, route="none", router="token", layers=[2]))
    router = routers_of(encoder)[0]
    with torch.no_grad():
        router.weight.zero_()
        router.weight[0], router.weight[2] = 0.01, 0.02
        router.weight[1] = -(router.weight[0] + router.weight[2])
    encoder[0].auto_model(**features_of(encoder, PLAIN))
    output = encoder[0].auto_model(**features_of(encoder, PLAIN))
    chosen = set(output.router_logits[0].topk(2).indices.flatten().tolist())
    weights = torch.linspace(-1, 1, output.last_hidden_state.numel())
    (output.last_hidden_state.flatten() * weights).sum().backward()
    touched = {
        int(name.partition(".experts.")[2].split(".")[0])
        for name, parameter in encoder.named_parameters()
        if ".experts." in name and parameter.grad is not None
    }
    assert touched == chosen
    assert router.weight.grad is not None
    assert float(router.weight.grad.abs().sum()) > 0


def _slow_balance(logits: tuple[Tensor, ...], top_k: int) -> float:
    values = []
    for block in logits:
        experts, tokens = block.shape[1], len(block)
        chosen, mass = [0] * experts, [0.0] * experts
        for row in block.softmax(1).tolist():
            for number in sorted(range(experts), key=lambda one: -row[one])[:top_k]:
                chosen[number] += 1
            mass = [before + share for before, share in zip(mass, row, strict=True)]
        values.append(
            experts * sum(c / (tokens * top_k) * m / tokens for c, m in zip(chosen, mass, strict=True))
        )
    return sum(values) / len(values)


def test_balance_loss_equals_a_plain_loop_and_splits_by_text(choosing: SentenceTransformer) -> None:
    features = features_of(choosing, PLAIN)
    with token_loads_of(choosing) as loads:
        # Through the module, as training does: sentence-transformers does not call the transformer's hooks.
        choosing(dict(features))
    logits = choosing[0].auto_model(**features).router_logits
    loss = token_balance_loss(loads)
    assert loss.item() == pytest.approx(_slow_balance(logits, 2), abs=1e-5)
    assert [tuple(load.shape) for load in loads] == [(len(PLAIN), 2, 3)] * 4
    tokens = features["attention_mask"].sum(1).float()
    assert torch.allclose(loads[0].sum(-1), tokens[:, None].expand(-1, 2))
    parts = []
    for row in range(len(PLAIN)):
        with token_loads_of(choosing) as alone:
            choosing(features_of(choosing, PLAIN[row : row + 1]))
        parts.append(torch.stack(alone, dim=1))
    assert token_balance_loss(torch.cat(parts)).item() == pytest.approx(loss.item(), abs=1e-5)
    loss.backward()
    assert all(float(router.weight.grad.abs().sum()) > 0 for router in routers_of(choosing))


def test_the_balance_loss_is_1_when_even_and_grows_when_not() -> None:
    even = torch.full((4, 3, 2, 5), 7.0)  # (texts, blocks, 2, experts)
    assert float(token_balance_loss(even)) == pytest.approx(1.0)
    one_sided = torch.zeros(4, 3, 2, 5)
    one_sided[..., 0, :] = torch.tensor([10.0, 0, 0, 0, 0])
    one_sided[..., 1, :] = torch.tensor([5.0, 5, 0, 0, 0])
    assert float(token_balance_loss(one_sided)) == pytest.approx(5 / 2)


def test_operations_that_need_one_expert_per_text_are_refused(bases: dict[str, SentenceTransformer]) -> None:
    from sentence_experts.models.dense import average_experts, export_route

    encoder = sentence_experts.extend(bases["bert"], NAMES, router="token", route="prefix")
    for refused in (lambda: encoder.router_choices(["copd: a"]), lambda: export_route(encoder, "copd")):
        with pytest.raises(UsageError, match="each token"):
            refused()
    average = average_experts(encoder)  # of copies: the base
    expected = bases["bert"].encode(["lungs"], prompt="cvd: ")
    assert np.abs(average.encode(["lungs"], prompt_name="cvd") - expected).max() < 1e-5
    for top_k in (0, 4):
        with pytest.raises(UsageError, match=r"`top_k` must be between 1 and .*\(3\)"):
            sentence_experts.extend(bases["bert"], NAMES, router="token", top_k=top_k)
    with pytest.raises(UsageError, match="scaled by the router's probability"):
        average_experts(sentence_experts.extend(bases["bert"], NAMES, router="token", top_k=1))
    with pytest.raises(UsageError, match="layers='none'"):
        sentence_experts.extend(bases["bert"], NAMES, router="token", layers="none")

"""Whoever chooses the expert - a route, a router of texts, a router of tokens - these hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

import sentence_experts
from helpers.features import features_of
from helpers.fresh_process import run_fresh
from helpers.packed_batches import packed
from helpers.routers import NAMES, PLAIN, sharpened, spread_routers
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.files.saving import save
from sentence_experts.models.routes.token_router import token_balance_loss, token_loads_of

PREFIXES = ("[CVD]", "[COPD]", "[SKIN_CANCER]", "[COPD]", "[CVD]", "[COPD]", "[CVD]")
ROUTED = [prefix + text for prefix, text in zip(PREFIXES, PLAIN, strict=True)]
WAYS: dict[str, dict[str, Any]] = {
    "route": {},
    "learned": {"route": "none", "router": "learned"},
    "switch": {"route": "none", "router": "switch"},
    "token": {"route": "none", "router": "token"},
}
IDS = [2, 0, 1, 0, 2, 1, 1]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def plain(way: str) -> list[str]:
    return ROUTED if way == "route" else PLAIN


def directed(encoder: SentenceTransformer, way: str) -> SentenceTransformer:
    """Make routers send the texts to all experts, and be sure of it."""
    if way in ("learned", "switch"):
        spread_routers(encoder, PLAIN)
    return sharpened(encoder)


@pytest.fixture
def encoder(
    way: str, base: SentenceTransformer, scatter: Callable[..., SentenceTransformer]
) -> SentenceTransformer:
    """Experts that differ, norms included."""
    return directed(scatter(sentence_experts.extend(base, NAMES, expert_norms=True, **WAYS[way])), way)


def loads_of(encoder: SentenceTransformer, way: str) -> AbstractContextManager[list[Tensor]]:
    return token_loads_of(encoder) if way == "token" else nullcontext([])


def choices(output: Any) -> list[Tensor]:
    return [logits.argmax(-1) for logits in getattr(output, "router_logits", None) or ()]


def test_a_vector_depends_on_the_text_alone(encoder: SentenceTransformer, plain: list[str]) -> None:
    together = encoder.encode(plain)
    alone = np.stack([encoder.encode(text) for text in plain])
    assert np.abs(together - alone).max() < 2e-6
    assert np.abs(encoder.encode(plain[::-1])[::-1] - alone).max() < 2e-6
    assert np.abs(encoder.encode(plain, batch_size=2) - alone).max() < 2e-6
    enforced = np.stack([encoder.encode(plain, expert_ids=expert) for expert in range(3)])
    assert min(np.abs(enforced[one] - enforced[two]).max() for one, two in ((0, 1), (0, 2), (1, 2))) > 1e-2


def test_left_padding_is_right_padding(encoder: SentenceTransformer, plain: list[str]) -> None:
    right = features_of(encoder, plain)
    lengths = right["attention_mask"].sum(1).tolist()
    width = right["input_ids"].shape[1]
    left = {
        name: torch.stack([row.roll(width - length) for row, length in zip(value, lengths, strict=True)])
        for name, value in right.items()
    }
    positions = (left["attention_mask"].cumsum(1) - 1).clamp(min=0)
    ours = encoder[0].auto_model(**left, position_ids=positions)
    theirs = encoder[0].auto_model(**right)
    for mine, other in zip(choices(ours), choices(theirs), strict=True):
        assert torch.equal(mine, other)
    for row, length in enumerate(lengths):
        mine = ours.last_hidden_state[row, width - length :]
        assert torch.allclose(mine, theirs.last_hidden_state[row, :length], atol=1e-5)


@pytest.mark.parametrize("expert_ids", [None, IDS])
def test_packed_sequences_are_routed_as_padded_ones(
    encoder: SentenceTransformer, plain: list[str], way: str, expert_ids: list[int] | None
) -> None:
    model, padded = encoder[0].auto_model, features_of(encoder, plain)
    given = {} if expert_ids is None else {"expert_ids": torch.tensor(expert_ids)}
    with loads_of(encoder, way) as expected_loads:
        expected = model(**padded, **given)
    inputs = packed(model, padded)
    with loads_of(encoder, way) as loads:
        output = model(**inputs, **given)
    for mine, other in zip(loads, expected_loads, strict=True):
        assert torch.allclose(mine, other, atol=1e-5)
    for row, (start, end) in enumerate(pairwise(inputs["cu_seq_lens_q"].tolist())):
        mine = output.last_hidden_state[0, start:end]
        assert torch.allclose(mine, expected.last_hidden_state[row, : end - start], atol=1e-5)


def test_each_sequence_has_its_states_in_both_forms(encoder: SentenceTransformer, plain: list[str]) -> None:
    model = encoder[0].auto_model
    model.set_attn_implementation("eager")
    options = {"output_hidden_states": True, "output_attentions": True}
    features = features_of(encoder, plain)
    batch = model(**features, **options)
    assert torch.equal(model(**features, **options, return_dict=False)[0], batch.last_hidden_state)
    assert len(batch.hidden_states) == 5
    for row, text in enumerate(plain):
        single = model(**features_of(encoder, [text]), **options)
        length = single.last_hidden_state.shape[1]
        for mine, alone in zip(batch.hidden_states, single.hidden_states, strict=True):
            assert torch.allclose(mine[row, :length], alone[0], atol=1e-5)
        for mine, alone in zip(batch.attentions, single.attentions, strict=True):
            assert torch.allclose(mine[row, :, :length, :length], alone[0], atol=1e-5)


@pytest.mark.parametrize("way", ["learned", "switch", "token"], indirect=True)
def test_expert_ids_override_the_choice(encoder: SentenceTransformer, plain: list[str]) -> None:
    model, features, ids = encoder[0].auto_model, features_of(encoder, plain), torch.tensor(IDS)
    output = model(**features, expert_ids=ids)
    for row in range(len(plain)):
        alone = {name: value[row : row + 1] for name, value in features.items()}
        single = model(**alone, expert_ids=ids[row : row + 1])
        assert torch.allclose(single.last_hidden_state[0], output.last_hidden_state[row], atol=1e-5)
    pooled = encoder({**features, "expert_ids": ids})["sentence_embedding"].detach().numpy()
    assert np.abs(encoder.encode(plain, expert_ids=IDS) - pooled).max() < 2e-6
    assert np.abs(encoder.encode(plain, expert_ids=IDS, batch_size=2) - pooled).max() < 2e-6
    assert np.abs(encoder.encode(plain) - pooled).max() > 1e-3
    pairs = [("a", "b"), ("c", "d")]
    assert encoder.encode(pairs, expert_ids=[1, 0]).shape == (2, pooled.shape[1])
    with pytest.raises(UsageError, match="go beyond"):
        model(**features, expert_ids=ids + 1)


@contextmanager
def without_dropout(encoder: SentenceTransformer) -> Iterator[None]:
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    encoder.train()
    yield
    encoder.eval()


@pytest.mark.parametrize("reentrant", [pytest.param(True, marks=pytest.mark.slow), False])
def test_gradient_checkpointing_gives_the_same_gradients_or_refuses(
    encoder: SentenceTransformer, plain: list[str], way: str, reentrant: bool
) -> None:
    """The routes of the recomputed batch must be that batch's, also when another one ran in between."""
    model = encoder[0].auto_model
    first, second = features_of(encoder, plain), features_of(encoder, plain[::-1][:3])

    def gradients() -> dict[str, Tensor]:
        encoder.zero_grad(set_to_none=True)
        with loads_of(encoder, way) as loads:
            output = model(**first)
        hidden = output.last_hidden_state
        value = (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum()
        if way == "token":
            value = value + 10 * token_balance_loss(loads)
        for logits in output.router_logits if way in ("learned", "switch") else ():
            targets = torch.arange(len(logits)) % logits.shape[1]
            value = value + nn.functional.cross_entropy(logits, targets)
        model(**second)  # another pass before the first one is computed again
        value.backward()
        return {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}

    with without_dropout(encoder):
        expected = gradients()
        assert any(".experts." in name for name in expected)
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        if reentrant and way in ("switch", "token"):
            with pytest.raises(UsageError, match="use_reentrant"):
                gradients()
            return
        recomputed = gradients()
    assert recomputed.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(recomputed[name], gradient, atol=1e-4, rtol=1e-4), name


@pytest.mark.parametrize("family", ["modernbert"], indirect=True)
def test_stock_loaders_and_fresh_processes_give_the_same_vectors(
    encoder: SentenceTransformer, plain: list[str], tmp_path: Path
) -> None:
    save(encoder, tmp_path / "model")
    code = f"""
import sys, numpy, sentence_experts.register
from sentence_transformers import SentenceTransformer
stock = SentenceTransformer(sys.argv[1], device="cpu")
assert type(stock) is SentenceTransformer
numpy.save(sys.argv[2], stock.encode({plain!r}))
"""
    done = run_fresh(code, tmp_path / "model", tmp_path / "vectors.npy")
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.load(tmp_path / "vectors.npy"), encoder.encode(plain), atol=1e-6)
    loaded = sentence_experts.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.encode(plain), encoder.encode(plain))


@pytest.mark.parametrize("router", ["learned", "token"])
@pytest.mark.parametrize("route", ["token", "prefix", "none"])
def test_before_training_any_choice_gives_the_base_vectors(
    base: SentenceTransformer, route: str, router: str, texts: list[str]
) -> None:
    settings: dict[str, Any] = {"route": route, "router": router, "layers": "alternate"}
    encoder = sentence_experts.extend(base, NAMES, **settings)
    if router == "learned":
        spread_routers(encoder, [encoder.prompts.get("cvd", "") + text for text in PLAIN])
    expected = base.encode(texts, prompt="cvd: " if route == "prefix" else "")
    named = {} if route == "none" else {"prompt_name": "cvd"}
    assert np.abs(sharpened(encoder).encode(texts, **named) - expected).max() <= 2e-6
    assert np.abs(encoder.encode(texts, expert_ids=1) - expected).max() <= 2e-6


@pytest.mark.parametrize("router", ["learned", "token"])
def test_routers_follow_the_seed_and_texts_their_routes(
    bases: dict[str, SentenceTransformer], router: str
) -> None:
    def weights(seed: int) -> Tensor:
        torch.rand(1)  # the global state moves on
        made = sentence_experts.extend(bases["bert"], NAMES, route="none", router=router, seed=seed)
        return torch.stack([p.detach() for name, p in made.named_parameters() if ".router." in name])

    first = weights(1)
    assert torch.equal(first, weights(1))
    assert not (first == weights(2)).any()
    assert not torch.equal(first[0], first[1])
    routed = sentence_experts.extend(bases["bert"], NAMES, router=router)
    with pytest.raises(RouteError, match=r"\[COPD\]"):
        routed.encode("no route")

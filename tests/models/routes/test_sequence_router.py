"""Learned routers: each block chooses from the text, whatever the padding and the company."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.files.saving import save
from sentence_experts.models.layers.experts import Experts
from sentence_experts.models.routes.sequence_router import SequenceRouter, sequence_states

NAMES = ["copd", "cvd", "skin cancer"]
PLAIN = [
    "the heart pumps blood",
    "lungs",
    "skin cancer grows slowly in the light of the lungs",
    "",
    "wheat rice maize barley",
    "air flow",
    "seeds soil (water) figures 1, 2",
]


def spread_routers(encoder: SentenceTransformer, texts: list[str]) -> SentenceTransformer:
    """Give every block a router whose logits are clearly apart and that uses all experts on these texts.

    Its rows separate the texts' own states, block by block, since each block's choice changes the next state.
    """
    model = encoder[0].auto_model
    features = features_of(encoder, texts)
    routers = [module for module in model.modules() if isinstance(module, SequenceRouter)]
    for block, router in enumerate(routers):
        states: list[Tensor] = []
        handle = router.register_forward_pre_hook(
            lambda _, given, states=states: states.append(sequence_states(*given))
        )
        model(**features)
        handle.remove()
        (means,) = states
        wanted = (torch.arange(len(texts)) + block) % router.out_features
        targets = 4 * nn.functional.one_hot(wanted, router.out_features).float()
        with torch.no_grad():
            router.weight.copy_(torch.linalg.lstsq(means, targets).solution.T)
    return encoder


@pytest.fixture
def choosing(base: SentenceTransformer, scatter: Callable[..., SentenceTransformer]) -> SentenceTransformer:
    """Experts that differ, and routers that send `PLAIN` to all of them."""
    encoder = scatter(sentence_experts.extend(base, NAMES, route="none", router="learned", expert_norms=True))
    return spread_routers(encoder, PLAIN)


def choices(encoder: SentenceTransformer, texts: list[str]) -> list[list[int]]:
    """The expert of each text in each block."""
    logits = encoder[0].auto_model(**features_of(encoder, texts)).router_logits
    return torch.stack(logits, dim=1).argmax(dim=2).tolist()


@pytest.mark.parametrize("route", ["token", "prefix", "none"])
def test_before_training_any_choice_gives_the_base_vectors(
    base: SentenceTransformer, route: str, texts: list[str]
) -> None:
    encoder = sentence_experts.extend(base, NAMES, route=route, router="learned", layers="alternate")
    spread_routers(encoder, [encoder.prompts.get("cvd", "") + text for text in PLAIN])
    prompt = "cvd: " if route == "prefix" else ""
    expected = base.encode(texts, prompt=prompt)
    named = {} if route == "none" else {"prompt_name": "cvd"}
    assert np.abs(encoder.encode(texts, **named) - expected).max() <= 1e-6
    assert np.abs(encoder.encode(texts, expert_ids=1) - expected).max() <= 1e-6


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


def test_a_route_and_a_vector_depend_on_the_text_alone(choosing: SentenceTransformer) -> None:
    alone = np.stack([choosing.encode(text) for text in PLAIN])
    assert np.abs(choosing.encode(PLAIN) - alone).max() < 1e-6
    assert np.abs(choosing.encode(PLAIN[::-1])[::-1] - alone).max() < 1e-6
    assert np.abs(choosing.encode(PLAIN, batch_size=2) - alone).max() < 1e-6
    assert choices(choosing, PLAIN[::-1])[::-1] == choices(choosing, PLAIN)
    assert [choices(choosing, [text])[0] for text in PLAIN] == choices(choosing, PLAIN)


def test_left_padding_is_right_padding(choosing: SentenceTransformer) -> None:
    right = features_of(choosing, PLAIN)
    lengths = right["attention_mask"].sum(1).tolist()
    width = right["input_ids"].shape[1]
    left = {
        name: torch.stack([row.roll(width - length) for row, length in zip(value, lengths, strict=True)])
        for name, value in right.items()
    }
    positions = (left["attention_mask"].cumsum(1) - 1).clamp(min=0)
    model = choosing[0].auto_model
    ours, theirs = model(**left, position_ids=positions), model(**right)
    for mine, other in zip(ours.router_logits, theirs.router_logits, strict=True):
        assert torch.allclose(mine, other, atol=1e-4)
    for row, length in enumerate(lengths):
        mine = ours.last_hidden_state[row, width - length :]
        assert torch.allclose(mine, theirs.last_hidden_state[row, :length], atol=1e-5)


@pytest.mark.parametrize("expert_ids", [None, [2, 0, 1, 0, 2, 1, 1]])
def test_packed_sequences_are_routed_as_padded_ones(
    choosing: SentenceTransformer, expert_ids: list[int] | None
) -> None:
    model = choosing[0].auto_model
    given = {} if expert_ids is None else {"expert_ids": torch.tensor(expert_ids)}
    padded = features_of(choosing, PLAIN)
    expected = model(**padded, **given)
    inputs = packed(model, padded)
    output = model(**inputs, **given)
    for mine, other in zip(output.router_logits, expected.router_logits, strict=True):
        assert torch.allclose(mine, other, atol=1e-4)
    for row, (start, end) in enumerate(pairwise(inputs["cu_seq_lens_q"].tolist())):
        mine = output.last_hidden_state[0, start:end]
        assert torch.allclose(mine, expected.last_hidden_state[row, : end - start], atol=1e-5)


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
    """Of the chosen expert, or of the one that is given in its place."""
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
    from sentence_experts.models.surgery.grow import add_route

    save(switching, tmp_path / "model")
    loaded = sentence_experts.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.encode(PLAIN), switching.encode(PLAIN))
    for refused in (
        lambda: export_route(loaded, "copd"),
        lambda: average_experts(loaded),
        lambda: add_route(loaded, "new"),
    ):
        with pytest.raises(UsageError, match="scaled by the router's probability"):
            refused()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("router", ["learned", "switch"])
def test_gradient_checkpointing_gives_the_same_logits_and_gradients(
    choosing: SentenceTransformer, router: str, reentrant: bool
) -> None:
    model = choosing[0].auto_model
    model.config.router = router
    for module in choosing.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    choosing.train()
    first, second = features_of(choosing, PLAIN), features_of(choosing, PLAIN[::-1][:3])

    def loss(output: Any) -> Tensor:
        hidden = output.last_hidden_state
        vectors = (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum()
        return vectors + 10 * _router_loss(output.router_logits)

    plain = _gradients(choosing, loss(model(**first)))
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if reentrant and router == "switch":
        with pytest.raises(UsageError, match="use_reentrant"):
            model(**first)
        return
    output = model(**first)
    assert len(output.router_logits) == 4
    model(**second)  # another pass before the first one is computed again
    recomputed = _gradients(choosing, loss(output))
    assert recomputed.keys() == plain.keys()
    for name, gradient in plain.items():
        assert torch.allclose(recomputed[name], gradient, atol=1e-4, rtol=1e-4), name
    assert len(output.router_logits) == 4


@pytest.mark.parametrize("route", ["token", "prefix", "none"])
def test_expert_ids_override_the_routers(
    base: SentenceTransformer, scatter: Callable[..., SentenceTransformer], route: str
) -> None:
    learned = scatter(sentence_experts.extend(base, NAMES, route=route, router="learned"))
    spread_routers(learned, [learned.prompts.get("cvd", "") + text for text in PLAIN])
    enforced = sentence_experts.extend(base, NAMES, route="token" if route == "none" else route)
    weights = {name: value for name, value in learned.state_dict().items() if ".router." not in name}
    if route == "none":
        weights = {name: value for name, value in weights.items() if "embeddings." not in name}
    enforced.load_state_dict(weights, strict=False)
    ids = [2, 0, 1, 0, 2, 1, 1]
    expected = enforced.encode(PLAIN, expert_ids=ids)
    assert np.abs(learned.encode(PLAIN, expert_ids=ids) - expected).max() < 1e-5
    assert np.abs(learned.encode(PLAIN, expert_ids=ids, batch_size=2) - expected).max() < 1e-5
    assert np.abs(learned.encode(PLAIN[0], expert_ids=2) - expected[0]).max() < 1e-5
    free = learned.encode(PLAIN) if route == "none" else learned.encode(PLAIN, prompt_name="cvd")
    assert np.abs(free - expected).max() > 1e-3
    pairs = learned.encode([("a", "b"), ("c", "d")], expert_ids=[1, 0])
    assert np.abs(pairs - enforced.encode([("a", "b"), ("c", "d")], expert_ids=[1, 0])).max() < 1e-5


def test_expert_ids_in_the_features_leave_the_logits_as_they_are(choosing: SentenceTransformer) -> None:
    features = features_of(choosing, PLAIN)
    model = choosing[0].auto_model
    ids = torch.tensor([2, 0, 1, 0, 2, 1, 1])
    output = model(**features, expert_ids=ids)
    assert torch.equal(output.router_logits[0], model(**features).router_logits[0])
    through_modules = choosing({**features, "expert_ids": ids})["token_embeddings"]
    assert torch.equal(through_modules, output.last_hidden_state)
    for row in range(len(PLAIN)):
        alone = model(
            **{name: value[row : row + 1] for name, value in features.items()}, expert_ids=ids[row : row + 1]
        )
        assert torch.allclose(alone.last_hidden_state[0], output.last_hidden_state[row], atol=1e-5)
    with pytest.raises(UsageError, match="go beyond"):
        model(**features, expert_ids=ids + 1)


def test_all_outputs_in_both_forms(choosing: SentenceTransformer) -> None:
    model = choosing[0].auto_model
    model.set_attn_implementation("eager")
    features = features_of(choosing, PLAIN)
    options = {"output_hidden_states": True, "output_attentions": True}
    output = model(**features, **options)
    as_tuple = model(**features, **options, return_dict=False)
    assert torch.equal(as_tuple[0], output.last_hidden_state)
    assert len(output.hidden_states) == 5
    for row in (0, 3):
        alone = model(**{name: value[row : row + 1] for name, value in features.items()}, **options)
        for mine, others in zip(alone.hidden_states, output.hidden_states, strict=True):
            length = int(features["attention_mask"][row].sum())
            assert torch.allclose(mine[0, :length], others[row, :length], atol=1e-5)


def test_saved_and_loaded_by_stock_sentence_transformers(
    choosing: SentenceTransformer, tmp_path: Path
) -> None:
    save(choosing, tmp_path / "model")
    stock = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert type(stock) is SentenceTransformer
    assert np.array_equal(stock.encode(PLAIN), choosing.encode(PLAIN))
    assert choices(stock, PLAIN) == choices(choosing, PLAIN)
    assert stock.prompts == choosing.prompts


@pytest.mark.parametrize("family", ["modernbert"], indirect=True)
def test_a_fresh_process_gives_the_same_vectors_and_choices(
    choosing: sentence_experts.ExpertEncoder, tmp_path: Path
) -> None:
    save(choosing, tmp_path / "model")
    code = f"""
import json, sys, sentence_experts
encoder = sentence_experts.load(sys.argv[1], device="cpu")
given = {{"vectors": encoder.encode({PLAIN!r}).tolist(), "names": encoder.router_choices({PLAIN!r}).names}}
print(json.dumps(given))
"""
    done = run_fresh(code, tmp_path / "model")
    assert done.returncode == 0, done.stderr
    given = json.loads(done.stdout)
    assert np.allclose(given["vectors"], choosing.encode(PLAIN), atol=1e-6)
    assert [tuple(names) for names in given["names"]] == choosing.router_choices(PLAIN).names


def test_router_weights_follow_the_seed_alone(bases: dict[str, SentenceTransformer]) -> None:
    def weights(seed: int) -> list[Tensor]:
        torch.rand(1)  # the global state moves on
        encoder = sentence_experts.extend(bases["bert"], NAMES, route="none", router="learned", seed=seed)
        return [module.weight for module in encoder.modules() if isinstance(module, SequenceRouter)]

    first, again, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not any(torch.equal(one, two) for one, two in zip(first, other, strict=True))
    assert not torch.equal(first[0], first[1])
    assert 0.01 < float(torch.cat(first).detach().std()) < 0.03


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


def test_a_learned_router_with_routes_still_needs_them(bases: dict[str, SentenceTransformer]) -> None:
    encoder = sentence_experts.extend(bases["bert"], NAMES, router="learned")
    with pytest.raises(RouteError, match=r"\[COPD\]"):
        encoder.encode("no route")


def test_a_mask_of_another_shape_hides_the_padding(choosing: SentenceTransformer) -> None:
    features = features_of(choosing, PLAIN[:2])
    mask = features["attention_mask"]
    square = (mask[:, None, :, None] * mask[:, None, None, :]).bool()
    with pytest.raises(UsageError, match="padding"):
        choosing[0].auto_model(input_ids=features["input_ids"], attention_mask=square)

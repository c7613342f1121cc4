"""Routes read from token ids: padding on either side, packed sequences, longest route first, clear errors."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import RouteError, UsageError
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.models.routes.routes import UNKNOWN, Route, experts_of, without_inner_route_tokens

ROUTES = (
    Route("short", "s", (7,), 0),
    Route("long", "s t", (7, 8), 1),
    Route("other", "o", (9, 8, 7), 2),
    Route("second way", "w", (5,), 1),
)


def test_the_longest_route_wins_and_routes_may_share_an_expert() -> None:
    ids = torch.tensor([[7, 1, 2], [7, 8, 2], [9, 8, 7], [9, 8, 1], [5, 7, 8], [1, 7, 8]])
    assert experts_of(ROUTES, ids).tolist() == [0, 1, 2, UNKNOWN, 1, UNKNOWN]
    assert experts_of(ROUTES[::-1], ids).tolist() == [0, 1, 2, UNKNOWN, 1, UNKNOWN]


def test_padding_on_either_side() -> None:
    ids = torch.tensor([[7, 8, 1, 0, 0], [0, 0, 7, 8, 1], [0, 9, 8, 7, 1], [7, 0, 0, 0, 0]])
    mask = (ids != 0).long()
    assert experts_of(ROUTES, ids, mask).tolist() == [1, 1, 2, 0]
    assert experts_of(ROUTES, ids, mask.bool()).tolist() == [1, 1, 2, 0]


def test_a_route_is_not_read_across_the_end_of_a_sequence() -> None:
    ids = torch.tensor([[1, 9], [8, 7]])
    mask = torch.tensor([[0, 1], [1, 1]])
    assert experts_of(ROUTES, ids, mask).tolist() == [UNKNOWN, UNKNOWN]
    packed = torch.tensor([[9, 8, 7, 1, 9, 8, 7]])
    bounds = torch.tensor([0, 2, 4, 7], dtype=torch.int32)
    assert experts_of(ROUTES, packed, None, bounds).tolist() == [UNKNOWN, 0, 2]


def test_inner_route_tokens_are_replaced_and_first_ones_kept() -> None:
    routes = (Route("a", "[A]", (7,), 0), Route("b", "[B]", (8,), 1))
    ids = torch.tensor([[7, 1, 8, 0], [0, 8, 7, 3]])
    mask = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1]])
    expected = [[7, 1, 99, 0], [0, 8, 99, 3]]
    assert without_inner_route_tokens(routes, 99, ids, mask).tolist() == expected
    bounds = torch.tensor([0, 3, 4, 8])
    packed = without_inner_route_tokens(routes, 99, ids.view(1, -1), None, bounds)
    assert packed.tolist() == [[7, 1, 99, 0, 0, 99, 99, 3]]


@pytest.mark.parametrize("text", ["no route", "[CLS]x", "", " [COPD]x", "[SEP][COPD] x", "[CANCER] x"])
def test_a_text_without_a_route_is_an_error_that_lists_the_routes(
    mixed: SentenceTransformer, text: str
) -> None:
    stock = SentenceTransformer(modules=list(mixed), prompts=mixed.prompts, device="cpu")
    for encoder in (mixed, stock):
        with pytest.raises(RouteError) as error:
            encoder.encode(["[COPD] fine", text])
        message = str(error.value)
        assert all(part in message for part in ("[COPD]", "[CVD]", "[SKIN_CANCER]", "prompt_name"))
        assert "\n" not in message
    with pytest.raises(RouteError):
        mixed.encode_query(text)


def test_explicit_expert_ids_override_the_route(mixed: SentenceTransformer) -> None:
    model = mixed[0].auto_model
    features = mixed.tokenize(["[COPD]the heart", "[COPD]lungs and air"])
    chosen = model(**features, expert_ids=torch.tensor([2, 0])).last_hidden_state
    for row, expert in enumerate((2, 0)):
        alone = model(**features, expert_ids=torch.full((2,), expert)).last_hidden_state
        assert torch.allclose(chosen[row], alone[row], atol=1e-6)
    assert not torch.allclose(chosen[0], model(**features).last_hidden_state[0], atol=1e-3)
    through_modules = mixed({**features, "expert_ids": torch.tensor([2, 0])})["token_embeddings"]
    assert torch.allclose(through_modules, chosen, atol=1e-6)


@pytest.mark.parametrize(
    "ids",
    [torch.tensor(ids) for ids in ([0, 3], [-1, -2], [0], [0.0, 1.0], 1)],
)
def test_expert_ids_that_do_not_fit(mixed: SentenceTransformer, ids: torch.Tensor) -> None:
    features = mixed.tokenize(["[COPD]the heart", "[COPD]lungs"])
    with pytest.raises(UsageError, match="expert_ids"):
        mixed[0].auto_model(**features, expert_ids=ids)


def test_a_mask_of_another_shape_needs_expert_ids(mixed: SentenceTransformer) -> None:
    model = mixed[0].auto_model
    features = mixed.tokenize(["[COPD]the heart", "[CVD]the lungs"])
    mask = features["attention_mask"]
    square = (mask[:, None, :, None] * mask[:, None, None, :]).bool()
    ids = features["input_ids"]
    with pytest.raises(UsageError, match="pass `expert_ids`"):
        model(input_ids=ids, attention_mask=square)
    experts = torch.tensor([1, 0])
    both = model(input_ids=ids, attention_mask=square, expert_ids=experts).last_hidden_state
    for row in (slice(0, 1), slice(1, 2)):
        alone = model(input_ids=ids[row], attention_mask=square[row], expert_ids=experts[row])
        assert torch.allclose(both[row], alone.last_hidden_state, atol=1e-5)


def test_a_route_token_inside_a_text_is_not_its_embedding(mixed: SentenceTransformer) -> None:
    """After a special token in the text the tokenizer makes the token; the model must not read it so."""
    model = mixed[0].auto_model
    text = "[CVD]x [SEP][COPD] y"
    copd = mixed.routes[0].token_ids[0]
    ids = mixed.tokenize([text])["input_ids"]
    assert copd in ids  # else this test guards nothing
    before = mixed.encode(text)
    with torch.no_grad():
        model.get_input_embeddings().weight[copd] += 5
    assert (mixed.encode(text) == before).all()
    assert not (mixed.encode("[COPD] y") == before).all()


def test_all_is_a_route_where_one_is_called_so(caplog: pytest.LogCaptureFixture) -> None:
    alone, both = (
        KnownRoutes.of("m", dict.fromkeys(names, "[A]"), None) for names in (["all"], ["all", "b"])
    )
    none = KnownRoutes.of("m", {"a": "[A]", "b": "[B]"}, None)
    assert [each.means_all(["all"]) for each in (none, alone)] == [True, False]
    assert not any(none.means_all(names) for names in (None, [], ["a"], ["all", "a"]))
    assert not caplog.records
    assert not both.means_all(["all"])
    assert "'all' is the route of this name, without the others (b)" in caplog.text

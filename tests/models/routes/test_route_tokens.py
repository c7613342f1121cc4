"""Route tokens: at the very start of a text and nowhere else, the rest as the base reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

import sentence_experts
from sentence_experts.errors import UsageError
from sentence_experts.models.routes.route_tokens import (
    MARKER,
    domain_token,
    prefix_routes,
    with_domain_tokens,
)


def _ids(tokenizer: object, text: str, **options: object) -> list[int]:
    return list(tokenizer(text, **options)["input_ids"])  # type: ignore[operator]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_characters=MARKER, exclude_categories=["Cs"]), max_size=30))
def test_text_after_a_route_reads_as_in_the_base(bases: dict[str, SentenceTransformer], text: str) -> None:
    for base in bases.values():
        if not hasattr(base, "routed_for_test"):
            base.routed_for_test = with_domain_tokens(base.tokenizer, ["copd", "cvd"])
        tokenizer, routes = base.routed_for_test
        assert _ids(tokenizer, "[CVD]" + text) == [*routes[1].token_ids, *_ids(base.tokenizer, text)[1:]]


@pytest.mark.parametrize(
    "text",
    ["x [COPD] y", " [COPD] a", "a[COPD]", "[[COPD]]", "the [copd] [CVD]", f"{MARKER}[COPD]{MARKER}"],
)
def test_route_characters_inside_a_text_are_ordinary_text(base: SentenceTransformer, text: str) -> None:
    tokenizer, routes = with_domain_tokens(base.tokenizer, ["copd", "cvd"])
    new = {route.token_ids[0] for route in routes}
    assert not new & set(_ids(tokenizer, text))
    assert not new & set(_ids(tokenizer, "[CVD]" + text)[1:])
    if MARKER not in text:
        assert _ids(tokenizer, text) == _ids(base.tokenizer, text)[1:]


def test_case_matters_where_it_matters_for_the_base(base: SentenceTransformer) -> None:
    tokenizer, routes = with_domain_tokens(base.tokenizer, ["copd"])
    uncased = _ids(base.tokenizer, "HEART") == _ids(base.tokenizer, "heart")
    assert (_ids(tokenizer, "[copd]x")[0] == routes[0].token_ids[0]) == uncased


def test_length_and_truncation_are_the_base_ones(base: SentenceTransformer) -> None:
    tokenizer, routes = with_domain_tokens(base.tokenizer, ["copd"])
    assert tokenizer.model_max_length == base.tokenizer.model_max_length
    text = "the heart pumps blood " * 20
    for limit in (None, 8, 3, 2):
        options = {"truncation": True, "max_length": limit}
        ours, theirs = _ids(tokenizer, "[COPD]" + text, **options), _ids(base.tokenizer, text, **options)
        assert ours == [*routes[0].token_ids, *theirs[1:]]


def test_padding_settings_of_the_file_are_kept(base: SentenceTransformer) -> None:
    tokenizer, _ = with_domain_tokens(base.tokenizer, ["copd"])
    for name in ("padding_side", "truncation_side", "model_input_names", "special_tokens_map"):
        assert getattr(tokenizer, name) == getattr(base.tokenizer, name), name
    fresh = AutoTokenizer.from_pretrained(base.tokenizer.name_or_path)
    routed, _ = with_domain_tokens(fresh, ["copd"])
    assert routed.backend_tokenizer.padding == fresh.backend_tokenizer.padding
    assert routed.backend_tokenizer.truncation == fresh.backend_tokenizer.truncation


def test_saved_and_loaded_it_is_the_same(
    mixed: SentenceTransformer, texts: list[str], tmp_path: Path
) -> None:
    mixed.save(str(tmp_path), create_model_card=False)
    for tokenizer in (
        AutoTokenizer.from_pretrained(tmp_path),
        SentenceTransformer(str(tmp_path), device="cpu").tokenizer,
        sentence_experts.load(tmp_path, device="cpu").tokenizer,
    ):
        tokenizer.save_pretrained(tmp_path / "again")
        again = AutoTokenizer.from_pretrained(tmp_path / "again")
        for text in texts:
            for lead in ("", "[COPD]", "[SKIN_CANCER]"):
                expected = mixed.tokenizer(lead + text)
                assert tokenizer(lead + text) == expected
                assert again(lead + text) == expected


def test_names_become_tokens() -> None:
    assert domain_token("skin cancer") == domain_token("skin-cancer") == "[SKIN_CANCER]"
    assert domain_token("Ärzte 2") == "[ÄRZTE_2]"


@pytest.mark.parametrize("name", ["", " x", "a]b", "a\nb", "_", "[x]", "a\u200b"])
def test_unusable_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expert name"):
        domain_token(name)


@pytest.mark.parametrize("names", [["mask"], ["skin cancer", "skin_cancer"], ["cls", "copd"]])
def test_tokens_of_the_base_are_refused_as_names(base: SentenceTransformer, names: list[str]) -> None:
    with pytest.raises(UsageError, match="token"):
        with_domain_tokens(base.tokenizer, names)


def test_names_with_the_same_normalized_token_are_refused(bases: dict[str, SentenceTransformer]) -> None:
    with pytest.raises(UsageError, match="same token"):
        with_domain_tokens(bases["bert"].tokenizer, ["cafe", "café"])


def test_instructions_with_a_common_beginning_are_distinguished(
    base: SentenceTransformer, texts: list[str]
) -> None:
    prefixes = {"query": "search query: ", "document": "search document: ", "any": "search: "}
    routes = prefix_routes(base.tokenizer, prefixes)
    for route, prefix in zip(routes, prefixes.values(), strict=True):
        for text in texts:
            ids = tuple(_ids(base.tokenizer, prefix + text))
            taken = [other.name for other in routes if ids[: len(other.token_ids)] == other.token_ids]
            assert taken == [route.name]


@pytest.mark.parametrize(
    ("prefixes", "message"),
    [
        ({"a": ""}, "empty"),
        ({"a": "  "}, "empty"),
        ({"a": "x: ", "b": "x:"}, "same"),
        ({"a": "the he"}, "runs into"),
    ],
)
def test_unusable_instructions_are_refused(
    bases: dict[str, SentenceTransformer], prefixes: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        prefix_routes(bases["bert"].tokenizer, prefixes)

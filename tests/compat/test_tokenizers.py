"""Canaries for the layout of tokenizer.json, which tokenizers with routes are cut from."""

from __future__ import annotations

import json

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from sentence_experts.compat.tokenizers import (
    copy_untruncated,
    find_leading_token,
    normalizer_steps,
    with_leading_token,
    without_leading_token,
    without_replacements,
    without_tokens,
)

WORDS = {"[CLS]": 0, "[SEP]": 1, "[UNK]": 2, "heart": 3, "blood": 4}


@pytest.fixture
def backend() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace("x", "heart")])
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)],
    )
    return tokenizer


def test_the_leading_token_comes_off_and_on_again(backend: Tokenizer) -> None:
    whole = backend.encode("heart").ids, backend.encode("heart", "blood").type_ids
    assert find_leading_token(backend) == "[CLS]"
    backend = without_leading_token(backend)
    assert backend.encode("heart").ids == [3, 1]
    assert find_leading_token(backend) is None
    again = with_leading_token(backend, "[CLS]")
    assert (again.encode("heart").ids, again.encode("heart", "blood").type_ids) == whole


def test_added_tokens_can_be_removed(backend: Tokenizer) -> None:
    backend.add_special_tokens([AddedToken("[COPD]", special=True)])
    assert backend.encode("[COPD] heart").ids == [0, 5, 3, 1]
    fewer = without_tokens(backend, {5})
    assert fewer.get_vocab_size() == 5
    assert 5 not in fewer.encode("[COPD] heart").ids


def test_steps_of_a_normalizer(backend: Tokenizer) -> None:
    assert len(normalizer_steps(backend.normalizer)) == 2
    assert normalizer_steps(None) == []
    assert backend.encode("X").ids == [0, 3, 1]
    assert without_replacements(backend, "x").encode("X").ids == [0, 2, 1]
    assert json.loads(without_replacements(backend, "x").to_str())["normalizer"] == {"type": "Lowercase"}


def test_calls_without_truncation_change_a_tokenizer_but_not_its_copy(backend: Tokenizer) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[UNK]")
    options = {"truncation": True, "max_length": 3, "padding": True}
    assert len(tokenizer("heart blood", **options)["input_ids"]) == 3
    state = tokenizer.backend_tokenizer.truncation, tokenizer.backend_tokenizer.padding
    assert None not in state
    counting = copy_untruncated(tokenizer)
    before = counting.backend_tokenizer.to_str()
    assert len(counting("heart blood", truncation=False, padding=False)["input_ids"]) == 4
    assert counting.backend_tokenizer.to_str() == before
    assert (tokenizer.backend_tokenizer.truncation, tokenizer.backend_tokenizer.padding) == state
    tokenizer("heart blood", truncation=False, padding=False)
    assert tokenizer.backend_tokenizer.truncation is tokenizer.backend_tokenizer.padding is None

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from helpers.small_language_models import tokenizer
from sentence_experts.errors import InputError, UsageError
from sentence_experts.moee.prompts import NO_PROMPT, PROMPTS, Prompt


def tokens(text: str) -> list[int]:
    return tokenizer()(text)["input_ids"]


def test_nine_prompts_and_none():
    assert len(PROMPTS) == 9
    assert Prompt.of("prompteol").template == 'This sentence: "{text}" means in one word:'
    assert Prompt.of("tone").tail == " (e.g., formal, informal, humorous, serious):"
    assert Prompt.of(NO_PROMPT) == Prompt("", "")
    assert Prompt.of("{text} in short:").tail == " in short:"
    assert all(template.count("{text}") == 1 for template in PROMPTS.values())


@pytest.mark.parametrize("wrong", ["summary", "{text} {text}", ""])
def test_what_is_no_prompt(wrong):
    with pytest.raises(UsageError, match="choose prompteol, style"):
        Prompt.of(wrong)


@pytest.mark.parametrize("most", [12, 13, 20, 40])
def test_a_long_text_is_cut_and_the_prompts_end_stays(most):
    prompt = Prompt.of("prompteol")
    ids = prompt.token_ids("rice wheat " * 30, tokens, most)
    assert len(ids) <= most
    assert len(ids) >= most - 1  # as much of the text as fits
    tail = tokens('" means in one word:')[1:]
    assert ids[-len(tail) :] == tail
    assert ids[: len(tokens('This sentence: "'))] == tokens('This sentence: "')


def test_a_prompt_that_alone_is_too_long():
    with pytest.raises(InputError, match="the prompt alone has 11 tokens, and the model reads 5"):
        Prompt.of("prompteol").token_ids("rice " * 9, tokens, 5)


@pytest.mark.parametrize("limit", range(20, 40))
def test_a_cut_does_not_depend_on_the_end_that_is_lost(limit: int) -> None:
    words = Tokenizer.from_file(str(Path(__file__).parent / "tiny-olmoe" / "tokenizer.json"))

    def find_ids(text: str) -> list[int]:
        return words.encode(text, add_special_tokens=False).ids

    def find_ends(text: str) -> list[int]:
        return [end for _, end in words.encode(text, add_special_tokens=False).offsets]

    text = "Understanding hippocampal replay requires electrophysiological recordings. " * 4
    expected, within = find_ids(text)[:limit], []
    for whole in (text, f"{text}And more."):
        assert Prompt.of("none").token_ids(whole, find_ids, limit, find_ends) == expected
        within.append(Prompt.of("prompteol").token_ids(whole, find_ids, limit, find_ends))
    assert within[0] == within[1]
    assert limit - 2 <= len(within[0]) <= limit

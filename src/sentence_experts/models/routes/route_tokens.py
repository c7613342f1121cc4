"""Tokenizers for routes: domain tokens in the place of [CLS], instructions as they are, or both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, normalizers
from transformers import PreTrainedTokenizerBase

from sentence_experts.compat.tokenizers import (
    copy_backend,
    find_leading_token,
    make_tokenizer,
    normalizer_steps,
    with_leading_token,
    without_leading_token,
    without_replacements,
    without_tokens,
)
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.routes.routes import Route
from sentence_experts.names import EXPERT

# A Unicode noncharacter, which no text should hold; one that does reads U+FFFD (replacement character) there.
MARKER = "\ufdd0"
# Token in [CLS]'s place before an instruction, in models that have domain tokens too.
INSTRUCTION_TOKEN = "[INSTRUCTION]"
# Texts that may follow an instruction; its tokens must not depend on them.
PROBES = ("", "a", "A", "the", "1", "(", ")", ".", "[x]", "é", "中", " a")


def domain_token(name: str) -> str:
    """Return the token of an expert: "skin cancer" -> "[SKIN_CANCER]"."""
    try:
        EXPERT.check("expert", name)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return f"[{re.sub(r'[ -]', '_', name).upper()}]"


def with_domain_tokens(
    tokenizer: PreTrainedTokenizerBase, experts: Sequence[str], instructions: Sequence[str] = ()
) -> tuple[PreTrainedTokenizerBase, list[Route]]:
    """Copy a tokenizer so that each expert's token takes [CLS]'s place (Hallee 2025, fig. 1).

    The token counts only at the very start of a text: the normalizer turns it into a marker there and nowhere
    else, and only the marker is the token. For a base that ignores case, "[copd]" is the token too. What
    follows the token is the text, white space included, exactly as the base reads it. A text that begins with
    one of `instructions` gets `INSTRUCTION_TOKEN` there, so that they work as without domain tokens.

    Returns:
        The tokenizer, and the routes of the domain tokens; their experts are numbered as in `experts`.
    """
    backend = copy_backend(tokenizer)
    first_new_id = len(tokenizer)
    names, tokens = list(experts), [domain_token(name) for name in experts]
    if instructions:
        names, tokens = [*names, "the instructions"], [*tokens, INSTRUCTION_TOKEN]
    starts = _find_start(backend, names, tokens)
    if tokenizer.cls_token is None or find_leading_token(backend) != tokenizer.cls_token:
        raise InputError("the base's tokenizer does not begin texts with a [CLS] token; use `route='prefix'`")
    backend = without_leading_token(backend)  # the domain token stands there instead
    normalizer = backend.normalizer
    rules = [
        normalizers.Replace(Regex(rf"\A{re.escape(start)}"), _mark(token))
        for start, token in zip(starts, tokens, strict=True)
    ]
    rules += [
        normalizers.Replace(Regex(_start_pattern(normalizer, each)), _mark(INSTRUCTION_TOKEN))
        for each in instructions
    ]
    steps = [*normalizer_steps(normalizer), normalizers.Replace(MARKER, "\ufffd"), *rules]
    backend.normalizer = normalizers.Sequence(steps)
    # normalized=True has the token itself normalized too: the marker is looked for in a text.
    backend.add_special_tokens([AddedToken(token, normalized=True, special=True) for token in tokens])
    routes = [
        Route(name, domain_token(name), (first_new_id + index,), index) for index, name in enumerate(experts)
    ]
    extended = make_tokenizer(tokenizer, backend)
    leads = {route.text: (route.token_ids[0], "") for route in routes}
    leads |= {each: (first_new_id + len(experts), each) for each in instructions}
    _check(tokenizer, extended, leads)
    return extended, routes


def without_domain_tokens(
    tokenizer: PreTrainedTokenizerBase, routes: Sequence[Route]
) -> PreTrainedTokenizerBase:
    """Make the base's tokenizer again from one that `with_domain_tokens` made."""
    backend = without_tokens(copy_backend(tokenizer), {route.token_ids[0] for route in routes})
    backend = without_replacements(backend, MARKER)
    return make_tokenizer(tokenizer, with_leading_token(backend, str(tokenizer.cls_token)))


def behind_instruction_token(tokenizer: PreTrainedTokenizerBase, routes: Sequence[Route]) -> list[Route]:
    """Change routes of instructions, led by [CLS], to the tokens of a tokenizer with domain tokens."""
    lead: Any = tokenizer.convert_tokens_to_ids(INSTRUCTION_TOKEN)
    return [replace(route, token_ids=(lead, *route.token_ids[1:])) for route in routes]


def prefix_routes(
    tokenizer: PreTrainedTokenizerBase, prefixes: Mapping[str, str], experts: Mapping[str, int] | None = None
) -> list[Route]:
    """Make the routes of instructions (route -> instruction), as the base's tokenizer reads them (MoTE, 4).

    What the tokenizer does not tell apart is one route: case for an uncased base, white space for WordPiece.
    `experts`: route -> the index of its expert; by default in the order of `prefixes`.
    """
    lead = tokenizer("")["input_ids"]
    lead = lead[: 1 if lead and lead[0] == tokenizer.cls_token_id else 0]
    routes: list[Route] = []
    experts = experts or {name: index for index, name in enumerate(prefixes)}
    for name, prefix in prefixes.items():
        bare = tokenizer(prefix.rstrip(), add_special_tokens=False)["input_ids"]
        if not bare:
            raise UsageError(f"the instruction of route {name!r} is empty: {prefix!r}")
        ids = (*lead, *bare)
        # After a letter or digit a text can continue the same word, even if no probe shows it.
        runs_on = prefix[-1].isalnum() or any(
            tuple(tokenizer(prefix + probe)["input_ids"][: len(ids)]) != ids for probe in PROBES
        )
        if runs_on:
            raise UsageError(
                f"route {name!r}: instruction {prefix!r} runs into the text after it; end it with ': '"
            )
        for other in routes:
            if other.token_ids == ids:
                raise UsageError(f"routes {other.name!r} and {name!r} have the same instruction: {prefix!r}")
            if all(ours == theirs for ours, theirs in zip(ids, other.token_ids, strict=False)):
                raise UsageError(
                    f"routes {other.name!r} and {name!r}: one instruction begins with the other, so a text "
                    f"could turn {other.text!r} into {prefix!r} or back; change one"
                )
        routes.append(Route(name, prefix, ids, experts[name]))
    return routes


def _mark(token: str) -> str:
    return f"{MARKER}{token}{MARKER}"


def _start_pattern(normalizer: Any, instruction: str) -> str:
    """Return a pattern that matches, with no width, a normalized text that begins with `instruction`.

    It takes any white space for any other: whether the tokens are the instruction's, `experts_of` decides.
    """
    words = (normalizer.normalize_str(instruction) if normalizer is not None else instruction).split()
    return r"\A(?=\s*" + r"\s+".join(re.escape(word) for word in words) + ")"


def _find_start(backend: Tokenizer, experts: Sequence[str], tokens: Sequence[str]) -> list[str]:
    """Return the beginning of a routed text after the base's normalizer, for each token."""
    vocabulary = backend.get_vocab()
    seen: dict[str, str] = {}
    for name, token in zip(experts, tokens, strict=True):
        start = backend.normalizer.normalize_str(token) if backend.normalizer is not None else token
        if token in vocabulary or start in vocabulary:
            raise UsageError(f"expert {name!r}: the base has a token {token} already; use another name")
        if start in seen:
            raise UsageError(f"experts {seen[start]!r} and {name!r} get the same token {start}; rename one")
        seen[start] = name
    return list(seen)


def _check(
    base: PreTrainedTokenizerBase, extended: PreTrainedTokenizerBase, leads: Mapping[str, tuple[int, str]]
) -> None:
    """Check that a routed text is read as its leading token and the base's tokens after [CLS].

    `leads`: beginning of a routed text -> its leading token, and the text that the base reads in its place.
    """
    for lead, (token, for_base) in leads.items():
        for probe in PROBES:
            expected = [token, *base(for_base + probe)["input_ids"][1:]]
            if extended(lead + probe)["input_ids"] != expected:
                raise InputError(
                    f"the base's tokenizer does not keep {lead!r} apart from texts; use `route='prefix'`"
                )

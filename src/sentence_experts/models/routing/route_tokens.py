"""Tokenizers for routes: domain tokens that stand where [CLS] stood, or instructions as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, normalizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.routing.routes import Route

# A Unicode noncharacter, which no text should hold; one that does reads U+FFFD (replacement character) there.
MARKER = "\ufdd0"
NAME = re.compile(r"[^\W_][\w -]*")
# What may follow an instruction; its tokens must not depend on it.
PROBES = ("", "a", "A", "the", "1", "(", ")", ".", "[x]", "é", "中", " a")


def domain_token(name: str) -> str:
    """The token of an expert: "skin cancer" -> "[SKIN_CANCER]".

    Raises:
        UsageError: the name is not a letter or digit followed by letters, digits, "_", "-" or spaces.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"expert name {name!r}: begin with a letter or digit, then also spaces, '_' and '-'")
    return f"[{re.sub(r'[ -]', '_', name).upper()}]"


def with_domain_tokens(
    tokenizer: PreTrainedTokenizerBase, experts: Sequence[str]
) -> tuple[PreTrainedTokenizerBase, list[Route]]:
    """A copy of the tokenizer in which each expert's token takes [CLS]'s place (Hallee 2025, fig. 1).

    The token counts only at the very start of a text: the normalizer turns it into a marker there and nowhere
    else, and only the marker is the token. For a base that ignores case, "[copd]" is the token too. Whatever
    follows the token is the text, white space included, exactly as the base reads it.

    Raises:
        InputError: the tokenizer does not begin sequences with [CLS].
        UsageError: two experts get the same token, or one that the vocabulary has already.
    """
    backend = _backend(tokenizer)
    first_new_id = len(tokenizer)
    tokens = [domain_token(name) for name in experts]
    starts = _starts(backend, experts, tokens)
    markers = [f"{MARKER}{token}{MARKER}" for token in tokens]
    _lead_without_cls(backend, tokenizer)
    backend.normalizer = normalizers.Sequence(
        [
            *_flat(backend.normalizer),
            normalizers.Replace(MARKER, "\ufffd"),
            *(
                normalizers.Replace(Regex(rf"\A{re.escape(start)}"), marker)
                for start, marker in zip(starts, markers, strict=True)
            ),
        ]
    )
    # normalized=True has the token's own text normalized too: what is looked for in a text is the marker.
    backend.add_special_tokens([AddedToken(token, normalized=True, special=True) for token in tokens])
    routes = [
        Route(name, token, (first_new_id + index,), index)
        for index, (name, token) in enumerate(zip(experts, tokens, strict=True))
    ]
    extended = _rebuilt(tokenizer, backend)
    _check(tokenizer, extended, routes)
    return extended, routes


def without_domain_tokens(
    tokenizer: PreTrainedTokenizerBase, routes: Sequence[Route]
) -> PreTrainedTokenizerBase:
    """The base's tokenizer again, from one that `with_domain_tokens` made: [CLS] begins every sequence."""
    described = json.loads(_backend(tokenizer).to_str())
    tokens = {route.text for route in routes}
    described["added_tokens"] = [one for one in described["added_tokens"] if one["content"] not in tokens]
    steps = [step for step in described["normalizer"]["normalizers"] if not _is_about_markers(step)]
    described["normalizer"] = {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else None
    if len(steps) == 1:
        described["normalizer"] = steps[0]
    processor = described["post_processor"]
    cls = str(tokenizer.cls_token)
    for kind in ("single", "pair"):
        processor[kind].insert(0, {"SpecialToken": {"id": cls, "type_id": 0}})
    processor["special_tokens"][cls] = {"id": cls, "ids": [tokenizer.cls_token_id], "tokens": [cls]}
    return _rebuilt(tokenizer, Tokenizer.from_str(json.dumps(described)))


def _is_about_markers(step: Mapping[str, Any]) -> bool:
    """Whether this step of a normalizer came with the domain tokens."""
    if step["type"] != "Replace":
        return False
    return MARKER in step["content"] or step["pattern"].get("String") == MARKER


def prefix_routes(
    tokenizer: PreTrainedTokenizerBase, prefixes: Mapping[str, str], sharing: Mapping[str, int] | None = None
) -> list[Route]:
    """The routes of instructions, as the unchanged tokenizer reads them (MoTE, section 4).

    What the tokenizer does not tell apart is one route: case for an uncased base, white space for WordPiece.

    Args:
        tokenizer: the base's.
        prefixes: route -> instruction. The order of those that are not shared gives the expert indices.
        sharing: route -> the index of the expert that it uses, where that is not its own.

    Raises:
        UsageError: an instruction is empty, runs into the text that follows it, or begins with another.
    """
    lead = tokenizer("")["input_ids"]
    lead = lead[: 1 if lead and lead[0] == tokenizer.cls_token_id else 0]
    routes: list[Route] = []
    own = [name for name in prefixes if name not in (sharing or {})]
    experts = {name: index for index, name in enumerate(own)} | dict(sharing or {})
    for name, prefix in prefixes.items():
        bare = tokenizer(prefix.rstrip(), add_special_tokens=False)["input_ids"]
        if not bare:
            raise UsageError(f"the instruction of route {name!r} is empty: {prefix!r}")
        ids = (*lead, *bare)
        # After a letter or digit a text can go on with the same word, whatever the probes show.
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
            shared = min(len(other.token_ids), len(ids))
            if other.token_ids[:shared] == ids[:shared]:
                raise UsageError(
                    f"routes {other.name!r} and {name!r}: one instruction begins with the other, so a text "
                    f"could turn {other.text!r} into {prefix!r} or back; change one"
                )
        routes.append(Route(name, prefix, ids, experts[name]))
    return routes


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """A copy of the Rust tokenizer."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{type(tokenizer).__name__} is a slow tokenizer; routes need a fast one")
    return Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())


def _flat(normalizer: Any) -> list[Any]:
    """The steps of a normalizer: a flat list, so that others can see what it does (lower-casing, say)."""
    if normalizer is None:
        return []
    steps: list[Any] = [normalizer]
    if isinstance(normalizer, normalizers.Sequence):
        steps = [normalizer[index] for index in range(len(normalizer))]
    return steps


def _starts(backend: Tokenizer, experts: Sequence[str], tokens: Sequence[str]) -> list[str]:
    """What the base's normalizer leaves of each token: how a routed text begins after it."""
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


def _lead_without_cls(backend: Tokenizer, tokenizer: PreTrainedTokenizerBase) -> None:
    """Drop the leading [CLS] from the post-processor's templates; the domain token stands there instead."""
    processor = json.loads(backend.to_str())["post_processor"] or {}
    templates = [processor.get(kind) or [{}] for kind in ("single", "pair")]
    leads = {template[0].get("SpecialToken", {}).get("id") for template in templates}
    if tokenizer.cls_token is None or leads != {tokenizer.cls_token}:
        raise InputError("the base's tokenizer does not begin texts with a [CLS] token; use route='prefix'")
    single, pair = (template[1:] for template in templates)
    others = sorted({part["SpecialToken"]["id"] for part in single + pair if "SpecialToken" in part})
    backend.post_processor = TemplateProcessing(
        single=[_piece(part) for part in single],
        pair=[_piece(part) for part in pair],
        special_tokens=[(token, backend.token_to_id(token)) for token in others],
    )


def _piece(part: Mapping[str, Mapping[str, Any]]) -> str:
    """One part of a template in the notation that `TemplateProcessing` takes: "$A:0", "[SEP]:1"."""
    ((kind, fields),) = part.items()
    return f"{'$' if kind == 'Sequence' else ''}{fields['id']}:{fields['type_id']}"


def _rebuilt(tokenizer: PreTrainedTokenizerBase, backend: Tokenizer) -> PreTrainedTokenizerBase:
    """The tokenizer around `backend`, of the generic class, so that tokenizer.json alone says how it works.

    A family's own class would build its normalizer and template anew when loaded and drop the routes.
    """
    return TokenizersBackend(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        model_input_names=list(tokenizer.model_input_names),
        clean_up_tokenization_spaces=tokenizer.clean_up_tokenization_spaces,
        **tokenizer.special_tokens_map,
    )


def _check(base: PreTrainedTokenizerBase, extended: PreTrainedTokenizerBase, routes: Sequence[Route]) -> None:
    """Every route must be read as [route token] + what the base reads after [CLS]."""
    for route in routes:
        for probe in PROBES:
            expected = [*route.token_ids, *base(probe)["input_ids"][1:]]
            if extended(route.text + probe)["input_ids"] != expected:
                raise InputError(
                    f"the base's tokenizer does not keep {route.text!r} apart from texts; use route='prefix'"
                )

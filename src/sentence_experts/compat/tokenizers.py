"""Surgery on fast tokenizers: what the library `tokenizers` only takes through its JSON.

Its Python objects have setters for whole components (normalizer, post-processor), but a template cannot be
read, and an added token not be removed, except in the JSON of `Tokenizer.to_str()` (tokenizer.json), whose
layout is documented by example only.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping
from typing import Any

from tokenizers import Tokenizer, normalizers
from transformers import PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from sentence_experts.errors import InputError

TEMPLATES = ("single", "pair")


def copy_backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Copy the Rust tokenizer inside a tokenizer of transformers."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{type(tokenizer).__name__} is a slow tokenizer; routes need a fast one")
    return Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())


def copy_untruncated(tokenizer: Any) -> Any:
    """Copy a tokenizer, without truncation and padding, for calls from several threads at once.

    Undocumented: a fast tokenizer holds both as its state. A call that asks for others changes them, in the
    midst of another thread's call too; one that asks for neither changes nothing here.
    """
    copied = copy.deepcopy(tokenizer)
    if getattr(copied, "is_fast", False):
        copied.backend_tokenizer.no_truncation()
        copied.backend_tokenizer.no_padding()
    return copied


def make_tokenizer(like: PreTrainedTokenizerBase, backend: Tokenizer) -> PreTrainedTokenizerBase:
    """Make a tokenizer around `backend` with the other settings of `like`.

    It is of the generic class, so that tokenizer.json alone says how it works: a family's own class would
    rebuild its normalizer and template when loaded, and drop the routes.
    """
    return TokenizersBackend(
        tokenizer_object=backend,
        model_max_length=like.model_max_length,
        padding_side=like.padding_side,
        truncation_side=like.truncation_side,
        model_input_names=list(like.model_input_names),
        clean_up_tokenization_spaces=like.clean_up_tokenization_spaces,
        **like.special_tokens_map,
    )


def normalizer_steps(normalizer: Any) -> list[Any]:
    """Return a normalizer's steps as a flat list, so that other libraries can see what it does."""
    if normalizer is None:
        return []
    if isinstance(normalizer, normalizers.Sequence):
        return [normalizer[index] for index in range(len(normalizer))]
    return [normalizer]


def find_leading_token(backend: Tokenizer) -> str | None:
    """Return the special token that every sequence begins with; None if there is none."""
    processor = _describe(backend)["post_processor"] or {}
    templates = [processor.get(kind) or [{}] for kind in TEMPLATES]
    leads = {template[0].get("SpecialToken", {}).get("id") for template in templates}
    return leads.pop() if len(leads) == 1 else None


def without_leading_token(backend: Tokenizer) -> Tokenizer:
    """Copy a tokenizer so that sequences lack the special token that begins its templates."""
    described = _describe(backend)
    for kind in TEMPLATES:
        del described["post_processor"][kind][0]
    return Tokenizer.from_str(json.dumps(described))


def with_leading_token(backend: Tokenizer, token: str) -> Tokenizer:
    """Copy a tokenizer so that sequences begin with this special token of its vocabulary."""
    described = _describe(backend)
    processor = described["post_processor"]
    for kind in TEMPLATES:
        processor[kind].insert(0, {"SpecialToken": {"id": token, "type_id": 0}})
    number = backend.token_to_id(token)
    processor["special_tokens"][token] = {"id": token, "ids": [number], "tokens": [token]}
    return Tokenizer.from_str(json.dumps(described))


def without_tokens(backend: Tokenizer, ids: Collection[int]) -> Tokenizer:
    """Copy a tokenizer without these added tokens."""
    described = _describe(backend)
    described["added_tokens"] = [token for token in described["added_tokens"] if token["id"] not in ids]
    return Tokenizer.from_str(json.dumps(described))


def without_replacements(backend: Tokenizer, text: str) -> Tokenizer:
    """Copy a tokenizer without the steps of its normalizer that replace `text` or put it in."""
    described = _describe(backend)
    steps = [step for step in described["normalizer"]["normalizers"] if not _replaces(step, text)]
    several = {"type": "Sequence", "normalizers": steps}
    described["normalizer"] = several if len(steps) > 1 else next(iter(steps), None)
    return Tokenizer.from_str(json.dumps(described))


def _describe(backend: Tokenizer) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(backend.to_str())
    return described


def _replaces(step: Mapping[str, Any], text: str) -> bool:
    if step["type"] != "Replace":
        return False
    return text in step["content"] or step["pattern"].get("String") == text

"""Uses of sentence-transformers that its documentation does not promise."""

from __future__ import annotations

import copy
import json
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.base.modules import Router
from sentence_transformers.util.decorators import deprecated_kwargs
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from sentence_experts.compat.torch import share_weights
from sentence_experts.compat.values import describe_values
from sentence_experts.errors import InputError

M = TypeVar("M", bound=SentenceTransformer)
_BY_TASK = ("query_length", "document_length", "query_expansion")  # settings of a model's first module


def merge_columns(columns: list[dict[str, Tensor]]) -> dict[str, Any] | None:
    """Merge a batch's tokenised columns into one batch, column after column; None if they do not fit.

    Undocumented. The library's own losses merge columns the same way before one forward pass.
    """
    merged: dict[str, Any] | None = merge_feature_batches(columns)
    return merged


def transformer_of(model: SentenceTransformer) -> Any:
    """Return the transformers model in a model's first module; None if there is none."""
    return getattr(model[0], "auto_model", None)


def share_all_but_transformer(model: M, transformer: Any) -> M:
    """Return a model with the modules of another, but for the transformers model in the first of them."""
    return share_weights(model, **{"0": share_weights(model[0], model=transformer)})


def share_all_but_tokenizer(model: SentenceTransformer) -> SentenceTransformer:
    """Return a model of the same weights, whose tokenizer, maximum length and pooling are its own."""
    first = copy.copy(model[0])
    if hasattr(first, "processor"):
        first.processor = copy.deepcopy(first.processor)
    name, _ = next(model.named_children())
    shared = share_weights(model, **{name: first})
    shared.prompts = dict(model.prompts)
    return shared


def module_configs(model: SentenceTransformer) -> list[tuple[str, Any]]:
    """Return the class and config of each module; of values that are not JSON, the config has the classes."""
    configs = [module.get_config_dict() if hasattr(module, "get_config_dict") else {} for module in [*model]]
    plain = json.loads(json.dumps(configs, sort_keys=True, default=lambda each: type(each).__qualname__))
    return [(type(module).__qualname__, config) for module, config in zip(model, plain, strict=True)]


def check_one_way(model: SentenceTransformer) -> None:
    """Check that queries and documents are read alike but for their prompts, which are routes here.

    Raises:
        InputError: a `Router`, or a length for either, goes by the task of a call.
    """
    if any(isinstance(module, Router) for module in model.modules()):
        raise InputError(
            "models with a Router, which may have other modules for queries than for documents, are not "
            "supported: encode with their `encode_query` and `encode_document`"
        )
    by_task = [name for name in _BY_TASK if getattr(model[0], name, None)]
    if by_task:
        raise InputError(
            f"the model reads queries otherwise than documents (`{by_task[0]}`), which is not supported: set "
            f"`{by_task[0]}` to None, or encode with its `encode_query` and `encode_document`"
        )


def leaves_prompts_out(model: SentenceTransformer) -> bool:
    """Return whether the pooling of a model leaves the tokens of prompts out."""
    return any(config.get("include_prompt") is False for _, config in module_configs(model))


_SIDES = ("truncation_side", "padding_side")  # on which a tokenizer cuts texts, and fills them up


def tokenizer_kind(model: SentenceTransformer) -> list[Any]:
    """Return the classes of a tokenizer and of its steps, the size of its vocabulary, and where it cuts."""
    tokenizer = getattr(model, "tokenizer", None)
    fast = getattr(tokenizer, "backend_tokenizer", None)
    steps = ("normalizer", "pre_tokenizer", "model", "post_processor")
    kinds = [tokenizer, *(getattr(fast, step) for step in steps if fast is not None)]
    size = 0 if fast is None else fast.get_vocab_size()
    sides = (getattr(tokenizer, name, None) for name in _SIDES)
    return [*(type(each).__qualname__ for each in kinds), size, *sides]


def tokenizer_text(model: SentenceTransformer) -> str:
    """Return a fast tokenizer as JSON without the limits that each call changes; of another, its words."""
    tokenizer = getattr(model, "tokenizer", None)
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        return _describe_tokenizer(tokenizer)
    content = json.loads(fast.to_str())
    sides = {name: getattr(tokenizer, name, "right") for name in _SIDES}
    more = {name: side for name, side in sides.items() if side != "right"}
    return json.dumps({**content, "truncation": None, "padding": None, **more}, sort_keys=True)


def _describe_tokenizer(tokenizer: Any) -> str:
    """Return the text of a tokenizer of the library tokenizers, or the words of another one."""
    if hasattr(tokenizer, "to_str"):
        return str(tokenizer.to_str())
    if isinstance(tokenizer, PreTrainedTokenizerBase):
        vocabulary, special = tokenizer.get_vocab(), tokenizer.special_tokens_map
        return json.dumps([vocabulary, special], sort_keys=True, default=str)
    return "" if tokenizer is None else json.dumps(describe_values(tokenizer), sort_keys=True)


def tokenizer_limits(model: SentenceTransformer) -> Any:
    """Return a fast tokenizer's truncation and padding, which each call changes and a save writes."""
    fast = getattr(model.tokenizer, "backend_tokenizer", None)
    return None if fast is None else (fast.truncation, fast.padding)


def set_tokenizer_limits(model: SentenceTransformer, limits: Any) -> None:
    """Set the limits that `tokenizer_limits` gave."""
    if limits is not None:
        fast, (truncation, padding) = model.tokenizer.backend_tokenizer, limits
        fast.no_truncation()
        fast.no_padding()
        if truncation:
            fast.enable_truncation(**truncation)
        if padding:
            fast.enable_padding(**padding)


def prompt_of(model: SentenceTransformer, prompt: str | None, prompt_name: str | None) -> str:
    """Return the prompt of the texts of an `encode` with these arguments; "" for none."""
    return model._resolve_prompt(prompt, prompt_name) or ""


# The decorator by which the library's `encode` takes `sentences=`, the old name of its first parameter.
takes_sentences = deprecated_kwargs(sentences="inputs")

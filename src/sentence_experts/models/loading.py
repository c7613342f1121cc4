"""Load any sentence-transformers or transformers model, or say in one line why not."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.models.decoders import is_decoder, pad_on_the_right

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

# Our names -> those of sentence-transformers' Pooling.
POOLINGS = {"mean": "mean", "last": "lasttoken", "cls": "cls"}


def load_model(source: str, device: str | None = None, pooling: str | None = None) -> SentenceTransformer:
    """Load a sentence-transformers model; a plain transformers one gets a pooling.

    Args:
        source: a folder, or a hub id.
        device: chosen by itself when not given.
        pooling: mean, last (the last token) or cls (the first), in place of the model's own. A plain
            transformers checkpoint has none: it gets the mean over tokens, decoders too (as the 2025 paper
            pools its own models; it does not say how it pools Llama).

    Raises:
        UsageError: an unknown pooling.
        InputError: there is no such folder, it holds no model that can be loaded, or no pooling to replace.
    """
    sentence_transformers = require("sentence_transformers", "models")
    if pooling is not None and pooling not in POOLINGS:
        raise UsageError(f"unknown pooling {pooling!r}: choose {', '.join(POOLINGS)}")
    check_source(source)
    load_quietly()
    try:
        model = sentence_transformers.SentenceTransformer(source, device=device)
        plain = not sentence_transformers.util.is_sentence_transformer_model(source)
    except Exception as error:  # whatever a broken file or a missing device makes the libraries raise
        where = f" on {device}" if device else ""
        raise InputError(f"{source}: this model cannot be loaded{where}: {error}") from error
    if is_decoder(model):
        pad_on_the_right(model)
        if plain and pooling is None:
            pooling = "mean"
            logger.info(f"{source}: a decoder language model; its vectors are the mean over the tokens")
    if pooling is not None:
        _set_pooling(model, source, POOLINGS[pooling])
    return model  # type: ignore[no-any-return]


def check_source(source: str) -> None:
    """Whether a source that looks like a folder is one that holds a model; a hub id is not looked for.

    Raises:
        InputError: it is not.
    """
    looks_local = source.startswith((".", "/", "~")) or source.count("/") > 1
    if looks_local and not Path(source).is_dir():
        raise InputError(f"{source}: no such model folder")
    if Path(source).is_dir() and not any(Path(source).glob("*.json")):
        raise InputError(f"{source}: no model in this folder (no config.json or modules.json)")


def load_quietly() -> None:
    """Show no progress bar for weights: it would break the program's own lines."""
    require("transformers.utils.logging", "models").disable_progress_bar()


def pooling_of(model: SentenceTransformer) -> str | None:
    """The name of the model's pooling (`POOLINGS`); sentence-transformers' own for others; None without."""
    for module in model:
        mode = getattr(module, "pooling_mode", None)
        if isinstance(mode, str):
            return {theirs: ours for ours, theirs in POOLINGS.items()}.get(mode, mode)
        if mode is not None:
            return "+".join(mode)
    return None


def _set_pooling(model: SentenceTransformer, source: str, mode: str) -> None:
    modules = require("sentence_transformers.sentence_transformer.modules", "models")
    for name, module in model.named_children():
        if isinstance(module, modules.Pooling):
            replacement = modules.Pooling(module.embedding_dimension, mode, module.include_prompt)
            model.add_module(name, replacement)
            return
    raise InputError(f"{source}: this model has no pooling of tokens that another could replace")


def to_dtype(model: SentenceTransformer, name: str) -> None:
    """Have a model compute in float32, float16 or bfloat16.

    Raises:
        UsageError: another name.
    """
    import torch

    known = ("float32", "float16", "bfloat16")
    if name not in known:
        raise UsageError(f"unknown dtype {name!r}: choose {', '.join(known)}")
    model.to(dtype=getattr(torch, name))

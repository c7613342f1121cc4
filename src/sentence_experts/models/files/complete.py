"""Checks that a checkpoint holds its model's weights: transformers fills missing ones with random numbers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError
from sentence_experts.models.architectures.families import MODEL_TYPES
from sentence_experts.models.layers.weight_files import REMEDY, check_names, name_some, weights_file

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

POOLER = "pooler"  # part of BERT that no vector of ours needs; masked language models are saved without it


@contextmanager
def check_weights(source: str) -> Iterator[list[Any]]:
    """Refuse a model whose transformer's weights differ from its files; put the model in the list.

    Heads that an encoder does not use, such as the head of a masked language model, are left out and logged.
    """
    from sentence_experts.compat.transformers import collect_loading_reports

    loaded: list[Any] = []
    with collect_loading_reports() as reports:
        yield loaded
    file = weights_file(source)
    for report in reports:
        if report.mismatched_keys:
            name, shape, expected = min(report.mismatched_keys)
            raise InputError(
                f"{file}: weights have another shape than the config says: {name} is {tuple(shape)}, not "
                f"{tuple(expected)}; {REMEDY}"
            )
        if report.conversion_errors:
            raise InputError(f"{file}: weights do not fit: {name_some(report.conversion_errors)}; {REMEDY}")
        names = report.unexpected_keys
        foreign = {name for name in names if not all(_is_head(transformer, name) for transformer in loaded)}
        missing = {name for name in report.missing_keys if POOLER not in name.split(".")[:2]}
        check_names(file, missing, foreign)
        if names:
            logger.info(f"{source}: left out heads that an encoder does not use: {name_some(names)}")


def transformers_of(model: SentenceTransformer) -> list[Any]:
    """Return the transformers in a model's modules."""
    return [module.auto_model for module in model if hasattr(module, "auto_model")]


def _is_head(transformer: Any, name: str) -> bool:
    """Return whether a weight lies in no part of the encoder: a model's head stands beside these."""
    if transformer.config.model_type in MODEL_TYPES:
        return False  # this package saves no heads
    prefix = f"{transformer.base_model_prefix}."
    parts = {part for part, _ in transformer.named_children()} - {POOLER}
    return name.removeprefix(prefix).partition(".")[0] not in parts

"""Checks that a checkpoint holds its model's weights: transformers fills missing ones with random numbers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError
from sentence_experts.models.architectures.families import MODEL_TYPES
from sentence_experts.models.layers.weight_files import INDEX, REMEDY, check_names, named, weights_file
from sentence_experts.storage import read_json

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers.utils.loading_report import LoadStateDictInfo

logger = logging.getLogger(__name__)

POOLER = (
    "pooler"  # of BERT and its like: reads no vector of ours, and masked language models are saved without
)


@contextmanager
def checked_weights(source: str) -> Iterator[list[Any]]:
    """Refuse a model whose transformer's weights are not those of its files; put the model in the list.

    Heads that an encoder does not use, such as that of a masked language model, are left out and logged.
    """
    from sentence_experts.compat.transformers import loading_reports

    loaded: list[Any] = []
    with loading_reports() as reports:
        yield loaded
    file = weights_file(source)
    for report in reports:
        _check_values(file, report)
        names = report.unexpected_keys
        foreign = {name for name in names if not all(_is_head(transformer, name) for transformer in loaded)}
        check_names(file, {name for name in report.missing_keys if not _of_pooler(name)}, foreign)
        if names:
            logger.info(f"{source}: left out heads that an encoder does not use: {named(names)}")
    for transformer in loaded:
        _check_numbers(Path(file), transformer)


def transformers_of(model: SentenceTransformer) -> list[Any]:
    """Return the transformers in a model's modules."""
    return [module.auto_model for module in model if hasattr(module, "auto_model")]


def _check_values(file: str, report: LoadStateDictInfo) -> None:
    """Refuse weights of other shapes, and those that could not be put together from the file's."""
    if report.mismatched_keys:
        name, shape, expected = min(report.mismatched_keys)
        others = named(each[0] for each in report.mismatched_keys)
        raise InputError(
            f"{file}: weights have another shape than the config says: {others}; {name} is {tuple(shape)}, "
            f"not {tuple(expected)}; {REMEDY}"
        )
    if report.conversion_errors:
        raise InputError(f"{file}: weights do not fit together: {named(report.conversion_errors)}; {REMEDY}")


def _of_pooler(name: str) -> bool:
    return POOLER in name.split(".")[:2]


def _is_head(transformer: Any, name: str) -> bool:
    """Return whether a weight lies in no part of the encoder: a model's head stands beside these."""
    if transformer.config.model_type in MODEL_TYPES:
        return False  # this package saves no heads
    prefix = f"{transformer.base_model_prefix}."
    parts = {part for part, _ in transformer.named_children()} - {POOLER}
    return name.removeprefix(prefix).partition(".")[0] not in parts


def _check_numbers(file: Path, transformer: Any) -> None:
    """Refuse whole numbers where the model computes with others; transformers would convert them."""
    from safetensors import safe_open

    if not file.is_file() or getattr(transformer.config, "quantization_config", None) is not None:
        return
    names = set(read_json(file)["weight_map"].values()) if file.name == INDEX else {file.name}
    tensors = (*transformer.named_parameters(), *transformer.named_buffers())
    counts = {name.rpartition(".")[2] for name, tensor in tensors if not tensor.is_floating_point()}
    for path in filter(Path.is_file, (file.parent / name for name in sorted(names))):
        with safe_open(path, framework="pt") as weights:
            kinds = {name: weights.get_slice(name).get_dtype() for name in weights.keys()}  # noqa: SIM118
        whole = {name for name, kind in kinds.items() if "F" not in kind}
        if whole := {name for name in whole if name.rpartition(".")[2] not in counts}:
            raise InputError(f"{path}: weights are integers: {named(whole)}; {REMEDY}")

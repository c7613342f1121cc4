"""How a model's texts are prepared for batches, and batches become vectors."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.encoding.parallel_cpu import ParallelCpuEncoder
from sentence_experts.errors import InputError
from sentence_experts.serve.batcher import QueuedText, Vector

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CHARACTERS_PER_TOKEN = 4  # about, where a model has no tokenizer to ask
MAX_PER_TOKEN = 16  # longer texts are cut at this many characters per token of the maximum length


class MixedEncoder:
    """A model that takes tokenized texts of all routes and requests in one forward pass."""

    def __init__(self, model: SentenceTransformer) -> None:
        from sentence_experts.compat.sentence_transformers import sharing_all_but_tokenizer
        from sentence_experts.models.architectures.packed_forward import is_packed

        self._encoder = ParallelCpuEncoder(model, 1)
        # Texts of hundreds of thousands of characters are tokenized beside the others, by a tokenizer of
        # their own: a fast tokenizer takes one call at a time.
        self._for_long = ParallelCpuEncoder(sharing_all_but_tokenizer(model), 1)
        self._longest = model.max_seq_length or 0
        self.padded = model.device.type != "cpu" or not is_packed(model)
        model.eval()

    def tokenize(self, texts: Sequence[str], prompt: str | None, beside: bool = False) -> list[QueuedText]:
        """Prepare texts with a prompt in front, ready to be encoded.

        A tokenizer reads a text whole before it cuts it. So of a very long one it gets the beginning, up to a
        space, and the whole only if that has fewer tokens than the model reads.
        """
        encoder, longest = self._for_long if beside else self._encoder, self._longest
        starts = [_beginning(text, MAX_PER_TOKEN * longest) if longest else text for text in texts]
        rows, lengths, _ = encoder.tokenize(starts, prompt or "")
        whole = [n for n, text in enumerate(texts) if len(starts[n]) < len(text) and lengths[n] < longest]
        if whole:
            again = encoder.tokenize([texts[number] for number in whole], prompt or "")
            for number, row, length in zip(whole, *again[:2], strict=True):
                rows[number], lengths[number] = row, length
        groups = {id(row[0]): row[0] for row in rows}
        settings = {key: _shared_settings(features) for key, features in groups.items()}
        return [
            QueuedText(self, row, length, settings[id(row[0])])
            for row, length in zip(rows, lengths, strict=True)
        ]

    def encode(self, texts: Sequence[QueuedText]) -> Sequence[Vector]:
        """Return the vectors of texts in one forward pass."""
        vectors = self._encoder.encode_rows([text.row for text in texts], normalize=False)
        return _finite(vectors)


class RouteEncoder:
    """Any other model: batches hold texts of one route, and one batch runs at a time."""

    padded = True

    def __init__(self, encoder: BatchEncoder) -> None:
        self._encoder, self._lock = encoder, Lock()

    def tokenize(self, texts: Sequence[str], prompt: str | None, beside: bool = False) -> list[QueuedText]:
        """Prepare texts with the name of their route."""
        longest = self._encoder.model.max_seq_length or 512
        return [
            QueuedText(self, text, min(len(text) // CHARACTERS_PER_TOKEN + 2, longest), prompt)
            for text in texts
        ]

    def encode(self, texts: Sequence[QueuedText]) -> Sequence[Vector]:
        """Return the vectors of texts that share a route."""
        route: Any = texts[0].group
        with self._lock:
            return list(self._encoder.encode([text.row for text in texts], route))


def takes_packed(model: SentenceTransformer) -> bool:
    """Return whether a `MixedEncoder` can serve a model."""
    return ParallelCpuEncoder.takes(model, model.device.type)


def _shared_settings(features: dict[str, Any]) -> Hashable:
    """Return what else decides the vectors of a batch, and must be the same for all its texts."""
    import torch

    return tuple(
        (name, repr(value))
        for name, value in features.items()
        if not isinstance(value, torch.Tensor) or not value.dim()
    )


def _beginning(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    end = text.rfind(" ", 0, characters)
    return text[:end] if end > 0 else text


def _finite(vectors: Any) -> Sequence[Vector]:
    if not np.isfinite(vectors).all():
        raise InputError("the model gives numbers that are not finite for this text")
    return list(vectors)

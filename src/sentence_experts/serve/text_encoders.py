"""Encoders of the texts of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError
from sentence_experts.models.batching import Runtime
from sentence_experts.serve.batcher import QueuedText, Vector

MAX_PER_TOKEN = 16  # longer texts are cut at this many characters per token of the maximum length

T = TypeVar("T")


class MixedEncoder:
    """A model that takes tokenized texts of all routes and requests in one forward pass."""

    def __init__(self, runtime: Runtime, longest: int | None) -> None:
        """Encode with `runtime`; `longest` is the number of tokens that the model reads of a text."""
        self._runtime, self._longest = runtime, longest or 0
        # A tokenizer may take one call at a time, so long texts have another one.
        self._for_long = runtime.with_own_tokenizer()
        self.padded = runtime.padded

    def encode(self, texts: Sequence[QueuedText]) -> list[tuple[Vector, int]]:
        """Return the vector and number of tokens of each text, by as few forward passes as can be."""
        rows: list[Any] = [None] * len(texts)
        lengths = [0] * len(texts)
        for prompt, numbers in _grouped(texts, lambda text: text.prompt).items():
            tokenized = self._tokenize([texts[number].text for number in numbers], prompt or "")
            for number, row, length in zip(numbers, *tokenized, strict=True):
                rows[number], lengths[number] = row, length
        vectors: list[Any] = [None] * len(texts)
        for numbers in _grouped(rows, self._runtime.batch_key).values():
            encoded = self._runtime.encode_rows([rows[number] for number in numbers], normalize=False)
            if not np.isfinite(encoded).all():
                raise InputError("the model gives numbers that are not finite for this text")
            for number, vector in zip(numbers, encoded, strict=True):
                vectors[number] = vector
        return list(zip(vectors, lengths, strict=True))

    def _tokenize(self, texts: list[str], prompt: str) -> tuple[list[Any], list[int]]:
        """Return each text as the model reads it, and its number of tokens.

        A tokenizer reads a text whole before it cuts it. So of a very long one it gets the beginning, up to a
        space, and the whole only if that has fewer tokens than the model reads.
        """
        limit, longest = MAX_PER_TOKEN * self._longest, self._longest
        starts = [_beginning(text, limit) if longest else text for text in texts]
        rows, lengths, _ = self._runtime.tokenize(starts, prompt)
        for number, text in enumerate(texts):
            if len(starts[number]) < len(text) and lengths[number] < longest:
                (rows[number],), (lengths[number],), _ = self._for_long.tokenize([text], prompt)
        return list(rows), lengths


class RouteEncoder:
    """An encoder for any other model: texts are encoded route by route, and one batch runs at a time."""

    padded = True

    def __init__(self, encoder: BatchEncoder) -> None:
        self._encoder, self._lock = encoder, Lock()

    def encode(self, texts: Sequence[QueuedText]) -> list[tuple[Vector, int]]:
        """Return the vector and the approximate number of tokens of each text."""
        results: list[Any] = [None] * len(texts)
        for route, numbers in _grouped(texts, lambda text: text.prompt).items():
            with self._lock:
                vectors = self._encoder.encode([texts[number].text for number in numbers], route)
            for number, vector in zip(numbers, vectors, strict=True):
                results[number] = vector, texts[number].tokens
        return results


def _grouped(items: Sequence[T], key: Callable[[T], Any]) -> dict[Any, list[int]]:
    """Return the numbers of the items with each key."""
    groups: dict[Any, list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault(key(item), []).append(number)
    return groups


def _beginning(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    end = text.rfind(" ", 0, characters)
    return text[:end] if end > 0 else text

"""Encoding of texts in batches with a number of tokens, on every core of a CPU.

Two cores with a batch for each get more done than two that share one, since they never wait for each
other; and texts of about equal length beside each other leave little padding, or many equal lengths to a
packed batch. `benchmarks/encode.py` measures both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sentence_experts.progress import Advance, unseen

BATCHES = 24  # number of batches to aim at, so that cores end at about the same time
BATCHING = f"{BATCHES} of a number of tokens"  # description of the cut of texts into batches


class Runtime(Protocol):
    """A model by the steps that batches are made of: on torch (`TorchRuntime`), or on ONNX (`OnnxEncoder`).

    Attributes:
        tokens_per_batch: minimum and maximum number of tokens in a batch.
        padded: whether the padding of a batch is computed too.
    """

    tokens_per_batch: tuple[int, int]
    padded: bool

    @property
    def cores(self) -> int:
        """Number of batches side by side."""

    def one_core_each(self) -> AbstractContextManager[Callable[[], None]]:
        """Yield the function that a thread calls first, so that it works on one core."""

    def tokenize(self, texts: Sequence[str], prompt: str) -> tuple[list[Any], list[int], list[int] | None]:
        """Return each text as the model reads it, its number of tokens, and its expert if one is known."""

    def encode_rows(self, rows: Sequence[Any], normalize: bool) -> NDArray[np.float32]:
        """Return vectors of tokenized texts in one batch, (texts, dimensions)."""

    def batch_key(self, row: Any) -> Hashable:
        """Return the key that all texts of a batch must share."""

    def with_own_tokenizer(self) -> Runtime:
        """Return a runtime of the same weights, which tokenizes beside this one."""


def batches_of_tokens(
    lengths: Sequence[int], budget: int, groups: Sequence[int] | None = None, padded: bool = False
) -> Iterator[list[int]]:
    """Yield the indices of texts in batches of at most `budget` tokens; a longer text gets its own batch.

    Texts are sorted by group (such as their expert), then from long to short, so that a batch calls few
    experts, gives each many tokens, and holds little padding.

    Args:
        lengths: number of tokens per text.
        budget: maximum number of tokens per batch, with padding if `padded`.
        groups: group of each text.
        padded: whether to count every text as long as the longest of its batch.
    """
    group = groups or [0] * len(lengths)
    batch: list[int] = []
    tokens = longest = 0
    for place in sorted(range(len(lengths)), key=lambda one: (group[one], -lengths[one])):
        length = lengths[place]
        longest = max(longest, length)
        tokens = longest * (len(batch) + 1) if padded else tokens + length
        if batch and tokens > budget:
            yield batch
            batch, tokens, longest = [], length, length
        batch.append(place)
    if batch:
        yield batch


class ParallelCpuEncoder:
    """An encoder of many texts with one model on several cores; `workers` batches at a time."""

    def __init__(self, runtime: Runtime, workers: int | None = None) -> None:
        self.runtime = runtime
        self.workers = workers or runtime.cores

    def encode(
        self, texts: Sequence[str], prompt: str = "", normalize: bool = False, advance: Advance = unseen
    ) -> NDArray[np.float32]:
        """Return vectors of shape (texts, dimensions), in the order of the texts, at least one.

        The batches follow from the texts alone, so the vectors are the same on any number of cores. `advance`
        is called with the number of texts in each batch.
        """
        runtime = self.runtime
        rows, lengths, experts = runtime.tokenize(texts, prompt)
        least, most = runtime.tokens_per_batch
        budget = min(max(sum(lengths) // BATCHES, least), most)
        batches = list(batches_of_tokens(lengths, budget, experts, padded=runtime.padded))
        vectors: NDArray[np.float32] | None = None
        with runtime.one_core_each() as initializer:
            pool = ThreadPoolExecutor(min(self.workers, len(batches)), initializer=initializer)
            try:
                encoded = pool.map(
                    lambda batch: runtime.encode_rows([rows[n] for n in batch], normalize), batches
                )
                for batch, part in zip(batches, encoded, strict=True):
                    if vectors is None:
                        vectors = np.empty((len(texts), part.shape[1]), np.float32)
                    vectors[batch] = part
                    advance(len(batch))
            finally:
                pool.shutdown(cancel_futures=True)
        assert vectors is not None
        return vectors

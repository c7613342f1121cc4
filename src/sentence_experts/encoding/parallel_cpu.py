"""Texts to vectors on every core of a CPU: batches of so many tokens, each the work of one core.

Two cores that work on a batch each get more done than two that share one, since they never wait for each
other; and texts of about equal length beside each other leave little padding, or many equal lengths to a
packed batch. `benchmarks/encode.py` measures both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.batches import batches_of_tokens
from sentence_experts.models.routing.routes import experts_of_rows

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Tokens of a batch. Fewer do not keep a matrix multiplication busy, more only wait in memory.
LEAST_TOKENS, MOST_TOKENS = 1024, 2048
BATCHES = 24  # aimed at, so that cores end at about the same time


class ParallelCpuEncoder:
    """A model and the cores that it encodes on."""

    def __init__(self, model: SentenceTransformer, workers: int | None = None) -> None:
        """Args:
        model: one that `takes` accepts.
        workers: batches at a time; as many as torch has threads when not given.
        """
        import torch

        self.model = model
        self.workers = workers or torch.get_num_threads()
        # A fast tokenizer refuses a call from one thread while another changes how it pads.
        self._tokenizer_lock = Lock()

    @staticmethod
    def takes(model: SentenceTransformer) -> bool:
        """Whether the model runs on the CPU, by steps that cores can take side by side."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Transformer

        from sentence_experts.models.encoder import ExpertEncoder

        ordinary = type(model).encode is SentenceTransformer.encode or isinstance(model, ExpertEncoder)
        on_cpu = model.device.type == "cpu" and getattr(model[0], "backend", None) == "torch"
        return ordinary and on_cpu and isinstance(model[0], Transformer) and model.tokenizer is not None

    def encode(self, texts: Sequence[str], prompt: str = "", normalize: bool = False) -> NDArray[np.float32]:
        """Vectors of shape (texts, dimensions), in the order of the texts, of which there is at least one.

        The batches follow from the texts alone, so the vectors are the same on any number of cores.

        Args:
            texts: the texts.
            prompt: in front of each.
            normalize: scale each vector to length 1.
        """
        rows = self._token_ids([prompt + text for text in texts])
        lengths = [len(row) for row in rows]
        budget = min(max(sum(lengths) // BATCHES, LEAST_TOKENS), MOST_TOKENS)
        batches = list(batches_of_tokens(lengths, budget, self._experts_of(rows)))
        vectors: NDArray[np.float32] | None = None
        for batch, found in zip(batches, self._run(texts, batches, prompt, normalize), strict=True):
            if vectors is None:
                vectors = np.empty((len(texts), found.shape[1]), np.float32)
            vectors[batch] = found
        assert vectors is not None
        return vectors

    def _run(
        self, texts: Sequence[str], batches: Sequence[Sequence[int]], prompt: str, normalize: bool
    ) -> Iterator[NDArray[np.float32]]:
        """Each batch's vectors, in the order of the batches."""
        import torch

        def one(batch: Sequence[int]) -> NDArray[np.float32]:
            return self._forward([texts[place] for place in batch], prompt, normalize)

        self.model.eval()
        threads = torch.get_num_threads()
        pool = ThreadPoolExecutor(
            min(self.workers, len(batches)), initializer=torch.set_num_threads, initargs=(1,)
        )
        try:
            yield from pool.map(one, batches)
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)

    def _forward(self, texts: list[str], prompt: str, normalize: bool) -> NDArray[np.float32]:
        """As `SentenceTransformer.encode` for one batch."""
        import torch

        with torch.inference_mode():
            with self._tokenizer_lock:
                features: Any = self.model.preprocess(texts, prompt=prompt)
            found = self.model(features)["sentence_embedding"]
            if self.model.truncate_dim is not None:
                found = found[:, : self.model.truncate_dim]
            if normalize:
                found = torch.nn.functional.normalize(found, dim=1)
            vectors: NDArray[np.float32] = found.float().numpy()
            return vectors

    def _token_ids(self, texts: list[str]) -> list[list[int]]:
        most = self.model.max_seq_length
        with self._tokenizer_lock:
            rows: list[list[int]] = self.model.tokenizer(texts, truncation=most is not None, max_length=most)[
                "input_ids"
            ]
        return rows

    def _experts_of(self, rows: Sequence[Sequence[int]]) -> list[int] | None:
        """The expert of each text, where routes choose it."""
        from sentence_experts.models.architectures.routed_model import RoutedModel
        from sentence_experts.models.routing.router_kinds import router_kind

        encoder = getattr(self.model[0], "auto_model", None)
        if not isinstance(encoder, RoutedModel) or router_kind(encoder.config).is_learned:
            return None
        return experts_of_rows(encoder.routes, rows) if encoder.routes else None


def batching() -> str:
    """What decides how texts are cut into batches, as a name."""
    return f"{BATCHES} of {LEAST_TOKENS} to {MOST_TOKENS} tokens"

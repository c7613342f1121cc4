"""Texts to vectors on every core of a CPU: batches with a number of tokens, each the work of one core.

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
from sentence_experts.models.routing.router_kinds import router_kind
from sentence_experts.models.routing.routes import Route, experts_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

# Tokens per batch. Fewer do not keep a matrix multiplication busy, more only wait in memory.
MIN_TOKENS, MAX_TOKENS = 1024, 2048
BATCHES = 24  # aimed at, so that cores end at about the same time
TEXTS_AT_ONCE = 1024  # tokenized in one call


class ParallelCpuEncoder:
    """Encodes many texts with one model on several cores."""

    def __init__(self, model: SentenceTransformer, workers: int | None = None) -> None:
        """For a model that `takes` accepts; `workers` batches at a time, by default as torch has threads."""
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
        """
        import torch

        with torch.inference_mode():
            tokens = self._tokenize(texts, prompt)
        budget = min(max(sum(tokens.lengths) // BATCHES, MIN_TOKENS), MAX_TOKENS)
        batches = list(batches_of_tokens(tokens.lengths, budget, tokens.experts))
        vectors: NDArray[np.float32] | None = None
        for batch, found in zip(batches, self._run(tokens, batches, normalize), strict=True):
            if vectors is None:
                vectors = np.empty((len(texts), found.shape[1]), np.float32)
            vectors[batch] = found
        assert vectors is not None
        return vectors

    def _tokenize(self, texts: Sequence[str], prompt: str) -> _TokenizedTexts:
        """What the model reads of the texts, tokenized once."""
        tokens = _TokenizedTexts(self.model, len(texts))
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))  # for little padding
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            part = order[start : start + TEXTS_AT_ONCE]
            with self._tokenizer_lock:
                features = self.model.preprocess([texts[number] for number in part], prompt=prompt)
            tokens.add(part, features)
        return tokens

    def _run(
        self, tokens: _TokenizedTexts, batches: Sequence[Sequence[int]], normalize: bool
    ) -> Iterator[NDArray[np.float32]]:
        """Each batch's vectors, in the order of the batches."""
        import torch

        def one(batch: Sequence[int]) -> NDArray[np.float32]:
            return self._forward(tokens.batch(batch), normalize)

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

    def _forward(self, features: dict[str, Any], normalize: bool) -> NDArray[np.float32]:
        """As `SentenceTransformer.encode` for one batch."""
        import torch

        with torch.inference_mode():
            found = self.model(features)["sentence_embedding"]
            if self.model.truncate_dim is not None:
                found = found[:, : self.model.truncate_dim]
            if normalize:
                found = torch.nn.functional.normalize(found, dim=1)
            vectors: NDArray[np.float32] = found.float().numpy()
            return vectors


class _TokenizedTexts:
    """Texts as the model's `preprocess` gives them, to be put together in other batches.

    Attributes:
        lengths: the tokens of each text.
        experts: the expert of each text, if routes choose it.
    """

    def __init__(self, model: SentenceTransformer, count: int) -> None:
        from sentence_experts.models.architectures.routed_model import RoutedModel

        self._model = model
        routed = getattr(model[0], "auto_model", None)
        self._routes: tuple[Route, ...] = ()
        if isinstance(routed, RoutedModel) and not router_kind(routed.config).is_learned:
            self._routes = routed.routes
        self._places: list[tuple[dict[str, Any], int]] = [({}, 0)] * count
        self.lengths = [0] * count
        self.experts: list[int] | None = [0] * count if self._routes else None

    def add(self, numbers: Sequence[int], features: dict[str, Any]) -> None:
        """Take in the texts of these numbers, tokenized as one batch."""
        ids, mask = features["input_ids"], features["attention_mask"]
        lengths = mask.sum(dim=1).tolist()
        experts = experts_of(self._routes, ids, mask).tolist() if self._routes else None
        for row, number in enumerate(numbers):
            self._places[number] = (features, row)
            self.lengths[number] = lengths[row]
            if self.experts is not None and experts is not None:
                self.experts[number] = experts[row]

    def batch(self, numbers: Sequence[int]) -> dict[str, Any]:
        """The features of some texts, padded as the tokenizer pads."""
        import torch

        rows = [self._places[number] for number in numbers]
        found = dict(rows[0][0])  # what is the same for all texts stays
        for name, example in rows[0][0].items():
            if not isinstance(example, torch.Tensor) or not example.dim():
                continue
            if example.shape == rows[0][0]["input_ids"].shape:
                found[name] = self._padded(name, rows)
            else:
                found[name] = torch.stack([features[name][row] for features, row in rows])
        return found

    def _padded(self, name: str, rows: Sequence[tuple[dict[str, Any], int]]) -> Tensor:
        """One feature of texts, (texts, longest)."""
        from torch.nn.utils.rnn import pad_sequence

        tokenizer = self._model.tokenizer
        values = [features[name][row][features["attention_mask"][row] != 0] for features, row in rows]
        padding = (tokenizer.pad_token_id or 0) if name == "input_ids" else 0
        return pad_sequence(values, True, padding, tokenizer.padding_side)


def batching() -> str:
    """What decides how texts are cut into batches, as a name."""
    return f"{BATCHES} of {MIN_TOKENS} to {MAX_TOKENS} tokens"

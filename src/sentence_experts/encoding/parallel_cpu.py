"""Texts to vectors on every core of a CPU: batches with a number of tokens, each the work of one core.

Two cores that work on a batch each get more done than two that share one, since they never wait for each
other; and texts of about equal length beside each other leave little padding, or many equal lengths to a
packed batch. `benchmarks/encode.py` measures both.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sentence_experts.encoding.batches import batches_of_tokens
from sentence_experts.progress import Advance, unseen

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Tokens per batch. Fewer do not keep a matrix multiplication busy, more only wait in memory.
MIN_TOKENS, MAX_TOKENS = 1024, 2048
BATCHES = 24  # aimed at, so that cores end at about the same time
TEXTS_AT_ONCE = 1024  # tokenized in one call
BATCHING = f"{BATCHES} of {MIN_TOKENS} to {MAX_TOKENS} tokens"  # what decides how texts are cut into batches

# Features of several texts, and the row of one of them.
TokenizedText = tuple[dict[str, Any], int]


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
    def takes(model: SentenceTransformer, device: str = "cpu") -> bool:
        """Whether the model runs on this kind of device, by steps that cores can take side by side."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Transformer

        # An `ExpertEncoder` has an `encode` that asks for a route, and then does the same.
        ordinary = type(model).encode is SentenceTransformer.encode or hasattr(type(model), "routed_model")
        on_device = model.device.type == device and getattr(model[0], "backend", None) == "torch"
        return ordinary and on_device and isinstance(model[0], Transformer) and model.tokenizer is not None

    def encode(
        self, texts: Sequence[str], prompt: str = "", normalize: bool = False, advance: Advance = unseen
    ) -> NDArray[np.float32]:
        """Return vectors of shape (texts, dimensions), in the order of the texts, at least one.

        The batches follow from the texts alone, so the vectors are the same on any number of cores. `advance`
        is called with the number of texts in each batch.
        """
        import torch

        rows, lengths, experts = self.tokenize(texts, prompt)
        budget = min(max(sum(lengths) // BATCHES, MIN_TOKENS), MAX_TOKENS)
        batches = list(batches_of_tokens(lengths, budget, experts))
        vectors: NDArray[np.float32] | None = None
        self.model.eval()
        threads = torch.get_num_threads()
        pool = ThreadPoolExecutor(
            min(self.workers, len(batches)), initializer=torch.set_num_threads, initargs=(1,)
        )
        try:
            encoded = pool.map(lambda batch: self.encode_rows([rows[n] for n in batch], normalize), batches)
            for batch, part in zip(batches, encoded, strict=True):
                if vectors is None:
                    vectors = np.empty((len(texts), part.shape[1]), np.float32)
                vectors[batch] = part
                advance(len(batch))
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)
        assert vectors is not None
        return vectors

    def tokenize(
        self, texts: Sequence[str], prompt: str
    ) -> tuple[list[TokenizedText], list[int], list[int] | None]:
        """Return each text as the model's `preprocess` gives it, its number of tokens, and its expert.

        The last is None where routes choose no expert.
        """
        import torch

        from sentence_experts.compat.sentence_transformers import transformer_of
        from sentence_experts.models.architectures.families import MODEL_TYPES

        routed: Any = transformer_of(self.model)
        routes: Any = ()
        if getattr(getattr(routed, "config", None), "model_type", None) in MODEL_TYPES:
            from sentence_experts.models.routes.kinds import router_kind
            from sentence_experts.models.routes.routes import experts_of

            routes = () if router_kind(routed.config).is_learned else routed.routes
        rows: list[TokenizedText] = [({}, 0)] * len(texts)
        lengths, experts = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))  # for little padding
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            part = order[start : start + TEXTS_AT_ONCE]
            with torch.inference_mode(), self._tokenizer_lock:
                features = self.model.preprocess([texts[number] for number in part], prompt=prompt)
            ids, mask = features["input_ids"], features["attention_mask"]
            lengths[part] = mask.sum(dim=1).numpy()
            if routes:
                experts[part] = experts_of(routes, ids, mask).numpy()
            for row, number in enumerate(part):
                rows[number] = (features, row)
        return rows, lengths.tolist(), experts.tolist() if routes else None

    def encode_rows(self, rows: Sequence[TokenizedText], normalize: bool) -> NDArray[np.float32]:
        """Return vectors of the texts of `rows` in one batch, which is padded as the tokenizer pads.

        The rows may come from several calls of `tokenize`.
        """
        import torch
        from torch.nn.utils.rnn import pad_sequence

        tokenizer, first = self.model.tokenizer, rows[0][0]
        batch, device = dict(first), self.model.device  # what is the same for all texts stays
        for name, example in first.items():
            if not isinstance(example, torch.Tensor) or not example.dim():
                continue
            if example.shape == first["input_ids"].shape:
                values = [features[name][row][features["attention_mask"][row] != 0] for features, row in rows]
                padding = (tokenizer.pad_token_id or 0) if name == "input_ids" else 0
                batch[name] = pad_sequence(values, True, padding, tokenizer.padding_side).to(device)
            else:
                batch[name] = torch.stack([features[name][row] for features, row in rows]).to(device)
        with torch.inference_mode():
            output = self.model(batch)["sentence_embedding"]
            if self.model.truncate_dim is not None:
                output = output[:, : self.model.truncate_dim]
            if normalize:
                output = torch.nn.functional.normalize(output, dim=1)
            vectors: NDArray[np.float32] = output.float().cpu().numpy()
            return vectors

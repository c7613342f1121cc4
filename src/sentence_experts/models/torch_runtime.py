"""A sentence-transformers model on torch, by the steps that batches of many texts are made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXTS_AT_ONCE = 1024  # number of texts that are tokenized in one call

# Features of several texts, and the row of one of them.
TokenizedText = tuple[dict[str, Any], int]


class TorchRuntime:
    """A tokenizer of texts and encoder of batches; `OnnxEncoder` has the same methods.

    Attributes:
        tokens_per_batch: minimum and maximum number of tokens in a batch. Fewer do not keep a matrix
            multiplication busy, more only wait in memory.
        padded: whether the padding of a batch is computed too.
    """

    tokens_per_batch = (1024, 2048)

    def __init__(self, model: SentenceTransformer) -> None:
        from sentence_experts.models.architectures.packed_forward import is_packed

        self.model = model
        self.padded = model.device.type != "cpu" or not is_packed(model)
        # A fast tokenizer refuses a call from one thread while another changes how it pads.
        self._tokenizer_lock = Lock()
        model.eval()

    @staticmethod
    def takes(model: SentenceTransformer, device: str = "cpu") -> bool:
        """Return whether the model runs on this kind of device, by steps that cores can take side by side."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Transformer

        # An `ExpertEncoder` has an `encode` that asks for a route, and then does the same.
        ordinary = type(model).encode is SentenceTransformer.encode or hasattr(type(model), "routed_model")
        on_device = model.device.type == device and getattr(model[0], "backend", None) == "torch"
        return ordinary and on_device and isinstance(model[0], Transformer) and model.tokenizer is not None

    @property
    def cores(self) -> int:
        """Number of batches side by side: the threads of torch, or one on another device than the CPU."""
        import torch

        return torch.get_num_threads() if self.model.device.type == "cpu" else 1

    @contextmanager
    def one_core_each(self) -> Iterator[Callable[[], None]]:
        """Yield the function that a thread calls first, so that it works on one core."""
        import torch

        threads = torch.get_num_threads()
        try:
            yield lambda: torch.set_num_threads(1)
        finally:
            torch.set_num_threads(threads)

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
        batch, device = dict(first), self.model.device  # features that are the same for all texts stay
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

    def batch_key(self, row: TokenizedText) -> Hashable:
        """Return the other facts that decide the vectors of a batch, and that all its texts must share."""
        import torch

        return tuple(
            (name, repr(value))
            for name, value in row[0].items()
            if not isinstance(value, torch.Tensor) or not value.dim()
        )

    def with_own_tokenizer(self) -> TorchRuntime:
        """Return a runtime of the same weights, which tokenizes beside this one."""
        from sentence_experts.compat.sentence_transformers import share_all_but_tokenizer

        return TorchRuntime(share_all_but_tokenizer(self.model))

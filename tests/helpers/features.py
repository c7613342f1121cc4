"""Features of a batch of texts, as a model reads them."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor


def features_of(encoder: SentenceTransformer, texts: list[str], **options: Any) -> dict[str, Tensor]:
    """The tensors of the batch, as the transformers model takes them by name."""
    features = encoder.preprocess(texts, **options)
    return {name: value for name, value in features.items() if isinstance(value, Tensor)}

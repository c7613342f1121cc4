"""A batch as variable-length flash attention gets it: one row of all tokens, told apart by their lengths."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


def _packed_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Compute variable-length flash attention, sequence by sequence: (1, heads, tokens, width)."""
    bounds, window = kwargs["cu_seq_lens_q"].tolist(), kwargs.get("sliding_window")
    parts = []
    for start, end in pairwise(bounds):
        distance = torch.arange(end - start)[:, None] - torch.arange(end - start)
        near = None if window is None else distance.abs() < window
        q, k, v = (tensor[:, :, start:end] for tensor in (query, key, value))
        scale = kwargs["scaling"]
        parts.append(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=near, scale=scale))
    return torch.cat(parts, dim=2).transpose(1, 2), None


def packed(model: Any, padded: dict[str, Tensor]) -> dict[str, Tensor]:
    """The arguments of a batch padded on the right; from now on the model attends to packed batches."""
    ALL_ATTENTION_FUNCTIONS.register("packed_for_test", _packed_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("packed_for_test", lambda *_, **__: None)
    model.set_attn_implementation("packed_for_test")
    lengths = padded["attention_mask"].sum(1)
    bounds = torch.cat([torch.zeros(1, dtype=torch.int32), lengths.cumsum(0, dtype=torch.int32)])
    rows = [row[:length] for row, length in zip(padded["input_ids"], lengths.tolist(), strict=True)]
    return {
        "input_ids": torch.cat(rows)[None],
        "position_ids": torch.cat([torch.arange(len(row)) for row in rows])[None],
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
    }

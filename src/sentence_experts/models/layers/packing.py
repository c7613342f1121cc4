"""Batches without padding: the tokens of all texts in one row, attention within a text.

Everything but the attention treats a token by itself, so the row of its real tokens can stand in for a padded
batch. The attention is computed for texts of equal length at once. Both are entered through the interface of
transformers for attention functions, as `PACKED`; the padded path is "sdpa" of transformers.

Packing is for the CPU. On a GPU, sentence-transformers itself leaves the padding out for FlashAttention
(`attn_implementation="flash_attention_2"`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from sentence_experts.compat.torch import is_recording
from sentence_experts.compat.transformers import attention_of, padded_attention, padded_mask

PACKED, PADDED = "packed_sdpa", "sdpa"
# Number of queries that meet their window's keys in one call; more would compute scores only to mask them.
LOCAL_BLOCK = 256


@dataclass(frozen=True)
class Packing:
    """The places of a padded batch's tokens in the row without padding.

    Attributes:
        places: place of each token in the padded batch, read row by row, (tokens,).
        order: sequences in the row's order, (sequences,); None where it is the batch's.
        cu_seq_lens: beginnings of the sequences in the row, int32, (sequences + 1,).
        shape: shape of the padded batch, (sequences, length).
    """

    places: Tensor
    order: Tensor | None
    cu_seq_lens: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(
        cls, example: Tensor, mask: Tensor | None, groups: Tensor | None = None, in_order: bool = False
    ) -> Packing:
        """Plan a batch's packing: sequences of equal length side by side, for one attention call.

        Args:
            example: input_ids or embeddings, (sequences, length, ...).
            mask: attention mask, (sequences, length), 0 at padding, on either side; None for no padding.
            groups: integers, (sequences,); one group (one expert, say) comes side by side first.
            in_order: whether to leave the sequences in the batch's order instead.
        """
        shape, device = (example.shape[0], example.shape[1]), example.device
        real = torch.ones(shape, dtype=torch.bool, device=device) if mask is None else mask != 0
        lengths = real.sum(dim=1)
        places = torch.arange(real.numel(), device=device).view(shape)
        order = None
        if not in_order:
            keys = lengths if groups is None else groups * (shape[1] + 1) + lengths
            order = torch.argsort(keys, stable=True)
            real, places, lengths = real[order], places[order], lengths[order]
        starts = nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        return cls(places[real], order, starts, shape)

    def pack(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Pack inputs of tokens, (sequences, length, ...) or (1, length, ...), as (1, tokens, ...).

        Tokens keep the positions that they have in the padded batch.
        """
        sequences, length = self.shape
        packed = {
            name: value.expand(sequences, *value.shape[1:]).flatten(0, 1).index_select(0, self.places)[None]
            for name, value in inputs.items()
        }
        if "position_ids" not in packed:
            packed["position_ids"] = (self.places % length)[None]
        return packed

    def keywords(self, config: Any) -> dict[str, Any]:
        """Return the arguments by which a transformers encoder learns of the packing.

        No mask: the attention knows where texts begin and end. Where layers differ in attention, each kind
        needs this stated, or transformers would make a mask of all tokens by all tokens for the local ones.
        """
        kinds = getattr(config, "layer_types", None)
        masks = {"attention_mask": dict.fromkeys(kinds)} if kinds else {}
        return {"cu_seq_lens_q": self.cu_seq_lens, "cu_seq_lens_k": self.cu_seq_lens, **masks}

    def unpack(self, row: Tensor) -> Tensor:
        """Turn (1, tokens, width) back into (sequences, length, width), 0 at padding."""
        padded = row.new_zeros(self.shape[0] * self.shape[1], row.shape[-1])
        return padded.index_copy(0, self.places, row[0]).view(*self.shape, -1)

    def unpack_outputs(self, outputs: Any, pooler: nn.Module | None) -> Any:
        """Turn an encoder's outputs into outputs of the padded batch; the pooler, if any, runs again."""
        outputs["last_hidden_state"] = self.unpack(outputs["last_hidden_state"])
        if outputs.get("hidden_states") is not None:
            outputs["hidden_states"] = tuple(self.unpack(hidden) for hidden in outputs["hidden_states"])
        if pooler is not None:
            outputs["pooler_output"] = pooler(outputs["last_hidden_state"])
        return outputs


def packs(config: Any, example: Tensor, mask: Tensor | None) -> bool:
    """Return whether to pack a batch: the model is set to, and the caller has not laid it out already."""
    # A recorded graph has fixed steps; packing's depend on the texts. A mask that is not (sequences, length)
    # is an attention pattern of the caller.
    packable = example.device.type == "cpu" and not is_recording()
    return attention_of(config) == PACKED and packable and (mask is None or mask.dim() == 2)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Return attention within each sequence of a row, as an attention function of transformers.

    `query`, `key` and `value` are (1, heads, tokens, width), the result (1, tokens, heads, width), with None
    for the weights. `cu_seq_lens_q`, (sequences + 1,), says where sequences begin; without it the batch is
    padded. Tokens that are `sliding_window` apart, or farther, do not attend to each other.
    """
    if cu_seq_lens_q is None:
        return padded_attention(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    heads, width = query.shape[1], query.shape[3]
    parts = []
    for start, sequences, length in equal_runs(cu_seq_lens_q.tolist()):
        end = start + sequences * length
        # (heads, tokens, width) -> (sequences, heads, length, width)
        q, k, v = (
            row[0, :, start:end].unflatten(1, (sequences, length)).transpose(0, 1)
            for row in (query, key, value)
        )
        window = sliding_window if sliding_window is not None and length > sliding_window else None
        done = _attend_within(q, k, v, window, dropout_p=dropout, scale=scaling)
        parts.append(done.transpose(1, 2).reshape(sequences * length, heads, width))
    return torch.cat(parts)[None], None


def equal_runs(starts: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (first token, sequences, length) of each run of sequences of equal length, without empty ones."""
    start = starts[0]
    for length, run in groupby(end - begin for begin, end in pairwise(starts)):
        sequences = len(list(run))
        if length:
            yield start, sequences, length
        start += sequences * length


def _attend_within(q: Tensor, k: Tensor, v: Tensor, window: int | None, **options: Any) -> Tensor:
    """Compute attention, (sequences, heads, length, width), of each query to keys nearer than the window."""
    if window is None:
        return scaled_dot_product_attention(q, k, v, **options)
    length = q.shape[2]
    places = torch.arange(length, device=q.device)
    parts = []
    for first in range(0, length, LOCAL_BLOCK):
        last = min(first + LOCAL_BLOCK, length)
        low, high = max(0, first - window + 1), min(length, last + window - 1)
        near = (places[first:last, None] - places[low:high]).abs() < window
        part = scaled_dot_product_attention(
            q[:, :, first:last], k[:, :, low:high], v[:, :, low:high], attn_mask=near, **options
        )
        parts.append(part)
    return torch.cat(parts, dim=2)


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, padded_mask)

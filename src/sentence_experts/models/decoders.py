"""Decoder language models (Llama, Qwen, GPT-2) as text encoders: the baseline of the 2025 paper's Table 2.

sentence-transformers loads the blocks without the language-modelling head. Added here: padding, for which
such checkpoints often lack a token. `load` adds the pooling, which they do not store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def is_decoder(model: SentenceTransformer) -> bool:
    """Whether the model's blocks are those of a causal language model, not of a masked one."""
    from sentence_experts.compat.sentence_transformers import config_of
    from sentence_experts.compat.transformers import is_causal_only

    return is_causal_only(getattr(config_of(model), "model_type", None))


def pad_on_the_right(model: SentenceTransformer) -> None:
    """Pad a decoder's texts after their last token, with any token of the vocabulary.

    No token attends to later ones, so this padding changes nothing. On the left it would shift positions,
    which matters with absolute position embeddings (GPT-2).
    """
    tokenizer = model.tokenizer
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)

"""The switch of packing for encoders with experts, and for plain dense ones, which gain by it as much.

A model with experts packs by itself (`routed_model`). A dense encoder of transformers gets a `forward` in
front of the original (`replace_forward`), which packs the inputs and unpacks the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from sentence_experts.compat.torch import replace_forward
from sentence_experts.compat.transformers import attention_of, is_of_library, set_attention
from sentence_experts.models.architectures.families import FAMILIES, MODEL_TYPES
from sentence_experts.models.layers.packing import PACKED, PADDED, Packing, packs

# Dense encoders in which only the attention looks across tokens; True where a token's position
# is counted from the padding's id (RoBERTa), not from 0.
DENSE = dict.fromkeys((family.base_model_type for family in FAMILIES), False)
DENSE |= {"roberta": True, "xlm-roberta": True}
_TOKEN_INPUTS = ("input_ids", "inputs_embeds", "token_type_ids", "position_ids")


def use_packing(model: nn.Module, packed: bool = True) -> nn.Module:
    """Let every encoder in a model that can leave the padding out on the CPU, or have it pad again.

    The vectors stay the same but for rounding. Encoders that run another attention than the two paths (eager,
    FlashAttention) keep it. The model, a `SentenceTransformer` or transformers' encoder itself, is changed in
    place and returned.
    """
    for encoder in _find_encoders(model):
        if attention_of(encoder.config) in (PACKED, PADDED):
            set_attention(encoder.config, PACKED if packed else PADDED)
        if packed and encoder.config.model_type not in MODEL_TYPES:
            replace_forward(encoder, PackedForward(encoder))
    return model


def is_packed(model: nn.Module) -> bool | None:
    """Return whether an encoder in the model leaves the padding out on the CPU; None if none could."""
    packed = [
        attention_of(encoder.config) == PACKED
        and (encoder.config.model_type in MODEL_TYPES or isinstance(encoder.forward, PackedForward))
        for encoder in _find_encoders(model)
    ]
    return any(packed) if packed else None


def _find_encoders(model: nn.Module) -> Iterator[PreTrainedModel]:
    for module in model.modules():
        if not isinstance(module, PreTrainedModel) or module.base_model is not module:
            continue
        config = module.config
        dense = config.model_type in DENSE and not getattr(config, "is_decoder", False)
        # An attention by somebody else may know nothing of texts that lie in one row.
        dense = dense and all(is_of_library(type(layer)) for layer in module.modules())
        if config.model_type in MODEL_TYPES or dense:
            yield module


class PackedForward:
    """A dense encoder's `forward`, on packed batches where possible; copied and pickled with the encoder."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        self.encoder: Any = encoder

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the encoder's `forward`; inputs that are given by position are left padded."""
        encoder, forward = self.encoder, type(self.encoder).forward
        inputs = {name: kwargs[name] for name in _TOKEN_INPUTS if kwargs.get(name) is not None}
        example, mask = inputs.get("input_ids", inputs.get("inputs_embeds")), kwargs.get("attention_mask")
        unusual = args or kwargs.get("cu_seq_lens_q") is not None or kwargs.get("return_dict") is False
        if unusual or example is None or not packs(encoder.config, example, mask):
            return forward(encoder, *args, **kwargs)
        if DENSE[encoder.config.model_type] and "position_ids" not in inputs and "input_ids" in inputs:
            inputs["position_ids"] = _count_positions(inputs["input_ids"], encoder.config.pad_token_id)
        packing = Packing.of(example, mask)
        others = {name: kwargs[name] for name in kwargs.keys() - {*_TOKEN_INPUTS, "attention_mask"}}
        others |= packing.keywords(encoder.config) | {"return_dict": True}
        outputs = forward(encoder, **packing.pack(inputs), **others)
        return packing.unpack_outputs(outputs, getattr(encoder, "pooler", None))


def _count_positions(input_ids: Tensor, padding: int) -> Tensor:
    """Return positions as in RoBERTa, which counts tokens from the padding's id on."""
    real = input_ids != padding
    return real.cumsum(dim=1) * real + padding

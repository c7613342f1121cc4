"""BERT, ModernBERT and NomicBERT with experts: the classes of transformers, whose blocks take a plan.

BERT and NomicBERT are post-norm: norm, MLP and norm follow the attention, and treat every token by itself.
ModernBERT is pre-norm: one norm before the attention, one before the MLP.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.models.bert.modeling_bert import BertLayer, BertModel
from transformers.models.modernbert.modeling_modernbert import ModernBertEncoderLayer, ModernBertModel
from transformers.models.nomic_bert.modeling_nomic_bert import NomicBertLayer, NomicBertModel

from sentence_experts.models.architectures.configs import (
    BertExpertsConfig,
    ModernBertExpertsConfig,
    NomicBertExpertsConfig,
)
from sentence_experts.models.architectures.routed_block import Plan, RoutedBlock
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.layers.experts import Expert


class BertExpertsLayer(RoutedBlock, BertLayer):
    """`BertLayer` whose MLP, and norms if so configured, are the routed expert's."""

    def __init__(self, config: BertExpertsConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx=layer_idx)
        self.put_experts(config, layer_idx)

    def run(  # type: ignore[override]
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        *,
        plan: Plan,
        **kwargs: Any,
    ) -> Tensor:
        """Run the block; `BertEncoder` passes `encoder_*`, which mean nothing without cross-attention."""
        if self.experts is None:
            return BertLayer.forward(self, hidden_states, attention_mask, **kwargs)
        context, _ = self.attention.self(hidden_states, attention_mask, **kwargs)
        projection = self.attention.output
        attended = projection.dropout(projection.dense(context)) + hidden_states
        return self.experts.run(attended, self.plan_at(plan, attended), self._norm_mlp_norm)

    def _norm_mlp_norm(self, expert: Expert, attended: Tensor) -> Tensor:
        owns_norms = self.expert_norms
        hidden = (expert["attention_norm"] if owns_norms else self.attention.output.LayerNorm)(attended)
        mlp: Tensor = self.output.dropout(expert["output"](expert["intermediate"](hidden)))
        normed: Tensor = (expert["output_norm"] if owns_norms else self.output.LayerNorm)(mlp + hidden)
        return normed


class NomicBertExpertsLayer(RoutedBlock, NomicBertLayer):
    """`NomicBertLayer` whose gated MLP, and norms if so configured, are the routed expert's."""

    def __init__(self, config: NomicBertExpertsConfig, layer_idx: int) -> None:
        super().__init__(config)
        self.put_experts(config, layer_idx)

    def run(self, hidden_states: Tensor, *args: Any, plan: Plan, **kwargs: Any) -> Tensor:
        """Run the block."""
        if self.experts is None:
            return NomicBertLayer.forward(self, hidden_states, *args, **kwargs)
        attention, _ = self.self_attn(hidden_states, *args, **kwargs)
        attended = hidden_states + self.post_attention_dropout(attention)
        return self.experts.run(attended, self.plan_at(plan, attended), self._norm_mlp_norm)

    def _norm_mlp_norm(self, expert: Expert, attended: Tensor) -> Tensor:
        owns_norms = self.expert_norms
        hidden = (expert["attention_norm"] if owns_norms else self.post_attention_layernorm)(attended)
        mlp = self.post_mlp_dropout(expert["mlp"](hidden))
        normed: Tensor = (expert["output_norm"] if owns_norms else self.post_mlp_layernorm)(hidden + mlp)
        return normed


class ModernBertExpertsLayer(RoutedBlock, ModernBertEncoderLayer):
    """`ModernBertEncoderLayer` whose MLP, and norms if so configured, are the routed expert's."""

    def __init__(self, config: ModernBertExpertsConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.put_experts(config, layer_idx)

    def run(self, hidden_states: Tensor, *args: Any, plan: Plan, **kwargs: Any) -> Tensor:
        """Run the block."""
        if self.experts is None:
            return ModernBertEncoderLayer.forward(self, hidden_states, *args, **kwargs)
        if self.expert_norms:
            chosen = self.plan_at(plan, hidden_states)
            normed = self.experts.run(hidden_states, chosen, lambda expert, rows: expert["attn_norm"](rows))
            attended = hidden_states + self.attn(normed, *args, **kwargs)[0]
        else:
            attended = hidden_states + self.attn(self.attn_norm(hidden_states), *args, **kwargs)[0]
            chosen = self.plan_at(plan, attended)
        return self.experts.run(attended, chosen, self._add_mlp)

    def _add_mlp(self, expert: Expert, hidden: Tensor) -> Tensor:
        norm = expert["mlp_norm"] if self.expert_norms else self.mlp_norm
        mlp: Tensor = expert["mlp"](norm(hidden))
        return hidden + mlp


class BertExpertsModel(RoutedModel, BertModel):
    """`BertModel` that sends a sequence through one expert per block."""

    config_class = BertExpertsConfig
    config: BertExpertsConfig
    block_class = BertExpertsLayer
    _no_split_modules = ["BertEmbeddings", "BertExpertsLayer"]  # noqa: RUF012


class NomicBertExpertsModel(RoutedModel, NomicBertModel):
    """`NomicBertModel` that sends a sequence through one expert per block."""

    config_class = NomicBertExpertsConfig
    config: NomicBertExpertsConfig
    block_class = NomicBertExpertsLayer
    _no_split_modules = ["NomicBertEmbeddings", "NomicBertExpertsLayer"]  # noqa: RUF012


class ModernBertExpertsModel(RoutedModel, ModernBertModel):
    """`ModernBertModel` that sends a sequence through one expert per block."""

    config_class = ModernBertExpertsConfig
    config: ModernBertExpertsConfig
    block_class = ModernBertExpertsLayer
    _no_split_modules = ["ModernBertEmbeddings", "ModernBertExpertsLayer"]  # noqa: RUF012

"""BERT with experts (post-norm: norm, MLP, norm follow the attention and treat every token by itself)."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.models.bert.modeling_bert import BertLayer, BertModel

from sentence_experts.models.architectures.configs import BertExpertsConfig
from sentence_experts.models.architectures.routed_block import Plan, RoutedBlock
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.layers.dispatch import NOTHING_ROUTED
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
        plan: Plan = NOTHING_ROUTED,
        **kwargs: Any,
    ) -> Tensor:
        """Run one block: hidden_states and the result are (batch, length, width); `plan` has the experts.

        `BertEncoder` passes `encoder_*` to every block; without cross-attention they mean nothing.
        """
        if self.experts is None:
            return BertLayer.forward(self, hidden_states, attention_mask, **kwargs)
        context, _ = self.attention.self(hidden_states, attention_mask, **kwargs)
        projection = self.attention.output
        attended = projection.dropout(projection.dense(context)) + hidden_states
        return self.experts.run(attended, self.plan_at(plan, attended), self._norm_mlp_norm)

    def _norm_mlp_norm(self, expert: Expert, attended: Tensor) -> Tensor:
        own = self.expert_norms
        attention_norm = expert["attention_norm"] if own else self.attention.output.LayerNorm
        output_norm = expert["output_norm"] if own else self.output.LayerNorm
        hidden = attention_norm(attended)
        mlp: Tensor = self.output.dropout(expert["output"](expert["intermediate"](hidden)))
        normed: Tensor = output_norm(mlp + hidden)
        return normed


class BertExpertsModel(RoutedModel, BertModel):
    """`BertModel` whose sequences each go through one expert per block."""

    config_class = BertExpertsConfig
    config: BertExpertsConfig
    block_class = BertExpertsLayer
    _no_split_modules = ["BertEmbeddings", "BertExpertsLayer"]  # noqa: RUF012

"""NomicBERT with experts (post-norm, as BERT, with a gated MLP)."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.models.nomic_bert.modeling_nomic_bert import NomicBertLayer, NomicBertModel

from sentence_experts.models.architectures.configs import NomicBertExpertsConfig
from sentence_experts.models.architectures.routed_block import Plan, RoutedBlock
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.layers.dispatch import NOTHING_ROUTED
from sentence_experts.models.layers.experts import Expert


class NomicBertExpertsLayer(RoutedBlock, NomicBertLayer):
    """`NomicBertLayer` whose MLP, and norms if so configured, are the routed expert's."""

    def __init__(self, config: NomicBertExpertsConfig, layer_idx: int) -> None:
        super().__init__(config)
        self.put_experts(config, layer_idx)

    def run(  # type: ignore[override]
        self, hidden_states: Tensor, *args: Any, plan: Plan = NOTHING_ROUTED, **kwargs: Any
    ) -> Tensor:
        """Run one block: hidden_states and the result are (batch, length, width); `plan` has the experts."""
        if self.experts is None:
            return NomicBertLayer.forward(self, hidden_states, *args, **kwargs)
        attention, _ = self.self_attn(hidden_states, *args, **kwargs)
        attended = hidden_states + self.post_attention_dropout(attention)
        return self.experts.run(attended, self.plan_at(plan, attended), self._norm_mlp_norm)

    def _norm_mlp_norm(self, expert: Expert, attended: Tensor) -> Tensor:
        attention_norm = expert["attention_norm"] if self.expert_norms else self.post_attention_layernorm
        output_norm = expert["output_norm"] if self.expert_norms else self.post_mlp_layernorm
        hidden = attention_norm(attended)
        normed: Tensor = output_norm(hidden + self.post_mlp_dropout(expert["mlp"](hidden)))
        return normed


class NomicBertExpertsModel(RoutedModel, NomicBertModel):
    """`NomicBertModel` whose sequences each go through one expert per block."""

    config_class = NomicBertExpertsConfig
    config: NomicBertExpertsConfig
    block_class = NomicBertExpertsLayer
    _no_split_modules = ["NomicBertEmbeddings", "NomicBertExpertsLayer"]  # noqa: RUF012

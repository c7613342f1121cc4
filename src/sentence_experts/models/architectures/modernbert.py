"""ModernBERT with experts (pre-norm: one norm before the attention, one before the MLP)."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.models.modernbert.modeling_modernbert import ModernBertEncoderLayer, ModernBertModel

from sentence_experts.models.architectures.configs import ModernBertExpertsConfig
from sentence_experts.models.architectures.routed_block import Plan, RoutedBlock
from sentence_experts.models.architectures.routed_model import RoutedModel
from sentence_experts.models.layers.dispatch import NOTHING_ROUTED
from sentence_experts.models.layers.experts import Expert


class ModernBertExpertsLayer(RoutedBlock, ModernBertEncoderLayer):
    """`ModernBertEncoderLayer` whose MLP, and norms if so configured, are the routed expert's."""

    def __init__(self, config: ModernBertExpertsConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.put_experts(config, layer_idx)

    def run(  # type: ignore[override]
        self, hidden_states: Tensor, *args: Any, plan: Plan = NOTHING_ROUTED, **kwargs: Any
    ) -> Tensor:
        """Run one block: hidden_states and the result are (batch, length, width); `plan` has the experts."""
        if self.experts is None:
            return ModernBertEncoderLayer.forward(self, hidden_states, *args, **kwargs)
        if self.expert_norms:
            chosen = self.plan_at(plan, hidden_states)
            normed = self.experts.run(
                hidden_states, chosen, lambda expert, hidden: expert["attn_norm"](hidden)
            )
            attended = hidden_states + self.attn(normed, *args, **kwargs)[0]
        else:
            attended = hidden_states + self.attn(self.attn_norm(hidden_states), *args, **kwargs)[0]
            chosen = self.plan_at(plan, attended)
        return self.experts.run(attended, chosen, self._add_mlp)

    def _add_mlp(self, expert: Expert, hidden: Tensor) -> Tensor:
        norm = expert["mlp_norm"] if self.expert_norms else self.mlp_norm
        mlp: Tensor = expert["mlp"](norm(hidden))
        return hidden + mlp


class ModernBertExpertsModel(RoutedModel, ModernBertModel):
    """`ModernBertModel` whose sequences each go through one expert per block."""

    config_class = ModernBertExpertsConfig
    config: ModernBertExpertsConfig
    block_class = ModernBertExpertsLayer
    _no_split_modules = ["ModernBertEmbeddings", "ModernBertExpertsLayer"]  # noqa: RUF012

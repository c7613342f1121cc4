"""Routing weights: the scores that a model's routers give its experts (MoEE, section 3.1).

A text's routing weights are its last token's (or the mean over its tokens), block after block. As in
the paper the scores of a block, before the model selects its top experts, add up to 1.

transformers records the routers of nearly every mixture-of-experts model (`output_router_logits`). The rows
of `FAMILIES` say how a model turns the recorded numbers into scores, and which records belong to MLP routers.
A type without a row is read as most are: logits, scored by softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sentence_experts.errors import InputError, UsageError

SOFTMAX, SIGMOID = "softmax", "sigmoid"
LOGITS, PROBABILITIES = "logits", "probabilities"
SCORES = "scores"


@dataclass(frozen=True)
class RouterFamily:
    """The routers of one or more model types."""

    model_types: tuple[str, ...]  # names as in `config.model_type`
    scoring: str = SOFTMAX  # the scores of experts: a softmax over all, or the sigmoid of each
    recorded: str = LOGITS  # the records of transformers: logits, or probabilities (scores already)
    # (n, m): only the n-th (from 0) of every m records is an MLP's. JetMoE also routes attention.
    of_each: tuple[int, int] = (0, 1)
    # The class of routers that nothing records: their logits come from their input and `weight`.
    gate: str | None = None


FAMILIES = (
    RouterFamily((
        "olmoe", "flex_olmo", "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text", "mixtral", "phimoe",
        "gpt_oss", "granitemoe", "granitemoeshared", "granitemoehybrid", "deepseek_v2", "mistral4", "dbrx",
        "jamba", "ernie4_5_moe", "hunyuan_v1_moe", "minimax", "longcat_flash", "aria_text",
    )),
    RouterFamily((
        "deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "dots1", "exaone_moe", "afmoe",
        "minimax_m2", "lfm2_moe", "llama4_text", "laguna", "hy_v3", "mimo_v2_flash", "nemotron_h",
        "solar_open", "kimi_linear",
    ), scoring=SIGMOID),
    RouterFamily(("gemma4_text", "gemma4"), recorded=PROBABILITIES),
    # Three records per block: the attention's router, the same once more, the MLP's router.
    RouterFamily(("jetmoe",), of_each=(2, 3)),
    # DeepSeekMoE-16B has no class in transformers; the code that comes with its weights records no routers.
    RouterFamily(("deepseek",), gate="MoEGate"),
)  # fmt: skip
UNKNOWN = RouterFamily(())  # read as most are


def family_of(model_type: str) -> RouterFamily:
    """Return the row of a model type, or `UNKNOWN`."""
    return next((family for family in FAMILIES if model_type in family.model_types), UNKNOWN)


def published_weights(model_type: str) -> str:
    """Return the published code's routing weights: scores of DeepSeek's routers, logits of all others."""
    scores = model_type.startswith("deepseek") or family_of(model_type).recorded == PROBABILITIES
    return SCORES if scores else LOGITS


def router_records(recorded: Sequence[Tensor] | None, family: RouterFamily, name: str) -> list[Tensor]:
    """Select the MLP routers' logits (or probabilities) among the records, in the order of the blocks."""
    place, period = family.of_each
    records = list(recorded or ())
    if not records or len(records) % period:
        raise InputError(
            f"{name}: {len(records)} router records, expected a multiple of {period}: this version of "
            "transformers records this model differently"
        )
    return records[place::period]


def compute_weights(logits: Tensor, family: RouterFamily, weights: str = SCORES) -> Tensor:
    """Return the routing weights of some tokens in one block, float32, (..., experts) as the logits recorded.

    `weights`: "scores", or raw "logits".
    """
    values = logits.float()
    if weights == LOGITS and family.recorded == PROBABILITIES:
        raise UsageError("this model records probabilities of its routers, no logits: set `weights=scores`")
    if weights == LOGITS or family.recorded == PROBABILITIES:
        return values
    if family.scoring == SIGMOID:
        shares = values.sigmoid()
        return shares / shares.sum(dim=-1, keepdim=True)
    return values.softmax(dim=-1)


def last_tokens(values: Tensor, mask: Tensor) -> Tensor:
    """Take each text's last token, wherever the padding is: (batch, length, n) -> (batch, n)."""
    last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(dim=1)
    return values[torch.arange(len(values), device=values.device), last.to(values.device)]


def mean_tokens(values: Tensor, mask: Tensor) -> Tensor:
    """Average each text's tokens, padding left out: (batch, length, n) -> (batch, n)."""
    weights = mask.to(values.device, torch.float32).unsqueeze(-1)
    return (values.float() * weights).sum(dim=1) / weights.sum(dim=1)


TOKENS = {"last": last_tokens, "mean": mean_tokens}


def text_weights(
    records: Sequence[Tensor], mask: Tensor, family: RouterFamily, tokens: str = "last", weights: str = SCORES
) -> Tensor:
    """Return the routing weights of texts, (batch, experts of all blocks), float32.

    Args:
        records: routers' records per block, (batch * length, experts) or (batch, length, experts).
        mask: attention mask, (batch, length), 1 at tokens.
        family, weights: arguments of `compute_weights`.
        tokens: "last" or "mean".
    """
    by_text = (record.reshape(*mask.shape, record.shape[-1]) for record in records)
    if tokens == "last":  # only these tokens need scores
        parts = [compute_weights(last_tokens(record, mask), family, weights) for record in by_text]
    else:
        parts = [mean_tokens(compute_weights(record, family, weights), mask) for record in by_text]
    return torch.cat([each.to(parts[0].device) for each in parts], dim=1)

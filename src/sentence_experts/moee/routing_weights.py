"""Routing weights: the scores that a model's routers give its experts (MoEE, section 3.1).

A text's routing weights are those of its last token (or the mean over its tokens), block after block. As in
the paper the scores of a block, before the model selects its top experts, add up to 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sentence_experts.errors import InputError, UsageError
from sentence_experts.moee.families import LOGITS, PROBABILITIES, SCORES, SIGMOID, RouterFamily


def router_records(recorded: Sequence[Tensor] | None, family: RouterFamily, name: str) -> list[Tensor]:
    """Select the MLP routers' logits (or probabilities) among the records, in the order of the blocks.

    Raises:
        InputError: nothing was recorded, or not as many records as expected.
    """
    place, period = family.of_each
    records = list(recorded or ())
    if not records or len(records) % period:
        raise InputError(
            f"{name}: {len(records)} router records, expected a multiple of {period}: this version of "
            "transformers records this model differently"
        )
    return records[place::period]


def scored(logits: Tensor, family: RouterFamily, weights: str = SCORES) -> Tensor:
    """The routing weights of some tokens in one block, float32, (..., experts) as the logits recorded.

    `weights`: "scores", or raw "logits".

    Raises:
        UsageError: logits are wanted and probabilities recorded.
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
    """(batch, length, n) -> (batch, n): each text's last token, wherever the padding is."""
    positions = torch.arange(mask.shape[1], device=mask.device)
    last = (mask * positions).argmax(dim=1)
    return values[torch.arange(len(values), device=values.device), last.to(values.device)]


def mean_tokens(values: Tensor, mask: Tensor) -> Tensor:
    """(batch, length, n) -> (batch, n): the mean over each text's tokens, padding left out."""
    weights = mask.to(values.device, torch.float32).unsqueeze(-1)
    return (values.float() * weights).sum(dim=1) / weights.sum(dim=1)


TOKENS = {"last": last_tokens, "mean": mean_tokens}


def text_weights(
    records: Sequence[Tensor], mask: Tensor, family: RouterFamily, tokens: str = "last", weights: str = SCORES
) -> Tensor:
    """The routing weights of texts, (batch, experts of all blocks), float32.

    Args:
        records: per block (batch * length, experts) or (batch, length, experts).
        mask: (batch, length), 1 at tokens.
        family, weights: as of `scored`.
        tokens: "last" or "mean".
    """
    of_layers = []
    for record in records:
        by_text = record.reshape(*mask.shape, record.shape[-1])
        if tokens == "last":  # only these tokens need scores
            of_layers.append(scored(last_tokens(by_text, mask), family, weights))
        else:
            of_layers.append(mean_tokens(scored(by_text, family, weights), mask))
    return torch.cat([each.to(of_layers[0].device) for each in of_layers], dim=1)

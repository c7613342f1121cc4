"""Losses of learned routers, beside the contrastive loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from sentence_experts.models.routes.sequence_router import router_logits_of
from sentence_experts.models.routes.token_router import token_balance_loss, token_loads_of


def router_cross_entropy(logits: Tensor, experts: Tensor) -> Tensor:
    """Return the cross-entropy of the routers' choices to the experts of the texts' domains.

    Source: Hallee 2024, section 3.2.1.

    Args:
        logits: (texts, blocks, experts).
        experts: (texts,) the expert of each text's domain.

    Returns:
        The mean over blocks and texts.
    """
    targets = experts[:, None].expand(logits.shape[:2])
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_balancing(logits: Tensor) -> Tensor:
    """Return how evenly the routers use their experts (Fedus et al. 2022, Switch Transformers, eq. 4 to 6).

    experts * sum_i f_i P_i, where f_i is the share of the texts whose router prefers expert i, and P_i its
    mean probability. 1 if all experts are used equally, up to `experts` if one takes everything. The gradient
    flows through P alone.

    Args:
        logits: (texts, blocks, experts).

    Returns:
        The mean over the blocks.
    """
    experts = logits.shape[-1]
    probabilities = logits.softmax(dim=-1).mean(dim=0)  # (blocks, experts)
    shares = functional.one_hot(logits.argmax(dim=-1), experts).to(logits.dtype).mean(dim=0)
    return experts * (shares * probabilities).sum(dim=-1).mean()


@dataclass(frozen=True)
class RouterLoss:
    """A loss of the learned routers, on what they give for each text.

    The routers' outputs stand beside the vectors, so that their gradients are cached too and the texts of all
    processes count.

    Attributes:
        collect: a context that collects one tensor per block, (texts, ...), in a model's forward passes.
        loss: of all outputs (texts, blocks, ...) and the experts (texts,) of the texts' domains.
        by_domain: send the training texts to their domain's expert instead of the router's choice.
    """

    collect: Callable[[nn.Module], AbstractContextManager[list[Tensor]]]
    loss: Callable[[Tensor, Tensor], Tensor]
    by_domain: bool = False


def sequence_router_loss(
    cross_entropy: float = 1.0, balance: float = 0.0, by_domain: bool = True
) -> RouterLoss:
    """Return the loss of routers that choose one expert per text, a sum of two weighted parts."""

    def loss(logits: Tensor, experts: Tensor) -> Tensor:
        return cross_entropy * router_cross_entropy(logits, experts) + balance * load_balancing(logits)

    return RouterLoss(_collect_logits, loss, by_domain)


def token_router_loss(balance: float) -> RouterLoss:
    """Return the loss of routers that choose experts per token: load balancing, times `balance`."""
    return RouterLoss(token_loads_of, lambda loads, experts: balance * token_balance_loss(loads))


@contextmanager
def _collect_logits(model: nn.Module) -> Iterator[list[Tensor]]:
    inner = model.module if isinstance(model, DistributedDataParallel) else model

    def add_logits(module: nn.Module, inputs: Any, output: dict[str, Any]) -> dict[str, Any]:
        # DistributedDataParallel takes a router for unused if its logits are not among the outputs.
        return {**output, "router_logits": torch.stack(blocks, dim=1)}

    with router_logits_of(model) as blocks:
        handle = inner.register_forward_hook(add_logits)
        try:
            yield blocks
        finally:
            handle.remove()

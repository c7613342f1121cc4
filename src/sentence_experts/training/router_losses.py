"""What a learned router is trained with beside the contrastive loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from sentence_experts.models.routing.sequence_router import router_logits_of
from sentence_experts.models.routing.token_router import token_balance_loss, token_loads_of


def router_cross_entropy(logits: Tensor, experts: Tensor) -> Tensor:
    """Cross-entropy of the routers' choices to the expert of each text's domain (Hallee 2024, section 3.2.1).

    Args:
        logits: (texts, blocks, experts).
        experts: (texts,) the expert of each text's domain.

    Returns:
        The mean over blocks and texts.
    """
    targets = experts[:, None].expand(logits.shape[:2])
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_balancing(logits: Tensor) -> Tensor:
    """How evenly the routers use their experts (Fedus et al. 2022, Switch Transformers, eq. 4 to 6).

    experts * sum_i f_i P_i, where f_i is the share of the texts whose router prefers expert i, and P_i its
    mean probability. 1 if all experts are used alike, up to `experts` if one takes everything. The gradient
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


class RouterLoss(Protocol):
    """A loss of the routers, on what they give for each text.

    The routers' outputs stand beside the vectors, so that their gradients are cached too and the texts of all
    processes count.
    """

    @property
    def by_domain(self) -> bool:
        """Whether training texts go to their domain's expert, not to the router's choice."""
        ...

    def collect(self, model: nn.Module) -> AbstractContextManager[list[Tensor]]:
        """Collect one tensor per block, (texts, ...), in the forward passes inside the context."""
        ...

    def __call__(self, outputs: Tensor, experts: Tensor) -> Tensor:
        """The weighted loss of outputs (texts, blocks, ...); experts: (texts,) that of each text's domain."""
        ...


@dataclass(frozen=True)
class SequenceRouterLoss:
    """Of routers that choose one expert per text.

    Attributes:
        cross_entropy: weight of the cross-entropy to the domain.
        balance: weight of the load balancing.
        by_domain: send the training texts to their domain's expert instead of the router's choice.
    """

    cross_entropy: float = 1.0
    balance: float = 0.0
    by_domain: bool = True

    @contextmanager
    def collect(self, model: nn.Module) -> Iterator[list[Tensor]]:
        """The routers' logits, (texts, experts) per block."""
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

    def __call__(self, outputs: Tensor, experts: Tensor) -> Tensor:
        """As `RouterLoss`; outputs are logits (texts, blocks, experts)."""
        loss = self.cross_entropy * router_cross_entropy(outputs, experts)
        return loss + self.balance * load_balancing(outputs)


@dataclass(frozen=True)
class TokenRouterLoss:
    """Of routers that choose experts per token: the load balancing, with this weight."""

    balance: float
    by_domain: bool = False

    def collect(self, model: nn.Module) -> AbstractContextManager[list[Tensor]]:
        """The loads of the experts, (texts, 2, experts) per block."""
        return token_loads_of(model)

    def __call__(self, outputs: Tensor, experts: Tensor) -> Tensor:
        """As `RouterLoss`; outputs are loads (texts, blocks, 2, experts)."""
        return self.balance * token_balance_loss(outputs)

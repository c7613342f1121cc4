"""What a learned router is trained with beside the contrastive loss."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from sentence_experts.models.architectures.routed_model import RoutedModel


def router_cross_entropy(logits: Tensor, experts: Tensor) -> Tensor:
    """How surely the routers send the sequences to their domain's expert (Hallee 2024, section 3.2.1).

    Args:
        logits: (sequences, blocks, experts).
        experts: (sequences,) the expert of each sequence's domain.

    Returns:
        The cross-entropy, the mean over blocks and sequences.
    """
    targets = experts[:, None].expand(logits.shape[:2])
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_balancing(logits: Tensor) -> Tensor:
    """How evenly the routers use their experts (Fedus et al. 2022, Switch Transformers, eq. 4 to 6).

    experts * sum_i f_i P_i, where f_i is the share of the sequences whose router prefers expert i, and P_i
    its mean probability. 1 when all experts are used alike, up to `experts` when one takes everything. The
    gradient flows through P alone.

    Args:
        logits: (sequences, blocks, experts).

    Returns:
        The mean over the blocks.
    """
    experts = logits.shape[-1]
    probabilities = logits.softmax(dim=-1).mean(dim=0)  # (blocks, experts)
    shares = functional.one_hot(logits.argmax(dim=-1), experts).to(logits.dtype).mean(dim=0)
    return experts * (shares * probabilities).sum(dim=-1).mean()


@dataclass(frozen=True)
class RouterTraining:
    """How a model's learned router is trained.

    Attributes:
        cross_entropy: weight of the cross-entropy to the domain.
        balance: weight of the load balancing.
        by_domain: send the training texts to their domain's expert, whatever the router prefers.
    """

    cross_entropy: float = 1.0
    balance: float = 0.0
    by_domain: bool = True

    def loss(self, logits: Tensor, experts: Tensor) -> Tensor:
        """The weighted sum; shapes as of `router_cross_entropy`."""
        return self.cross_entropy * router_cross_entropy(logits, experts) + self.balance * load_balancing(
            logits
        )


def routed_model(model: nn.Module) -> RoutedModel | None:
    """The transformer with experts inside `model`, however it is wrapped; None when there is none."""
    return next((module for module in model.modules() if isinstance(module, RoutedModel)), None)

"""The learned token router, which chooses `top_k` experts per token in each block (MoTE, section 6, TLR).

As in GShard (Lepikhin et al. 2020) and Mixtral (Jiang et al. 2024), the `top_k` highest probabilities,
divided by their sum, are the weights with which the outputs of those experts are added up. With `top_k` 1,
where that weight is always 1, the probability multiplies the output of the expert's MLP instead, as in a
switch transformer (Fedus et al. 2022, eq. 2). No expert has a capacity, so that a token's experts do not
depend on its batch, and padding takes no part. Experts that are copies of the base's MLP give the base's
vectors, unless `top_k` is 1. Routes stay in the text and tell the router the task.

A block's router reads the tokens where they first meet modules of an expert: between attention and MLP, or
before the attention where the experts own the norm there (ModernBERT with `expert_norms`). It reads them
normalised, as Mixtral's does, but without weights, since the norm may be an expert's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sentence_experts.errors import UsageError
from sentence_experts.models.layers.dispatch import TokenDispatch, dispatch_tokens

REENTRANT = (
    "reentrant gradient checkpointing records no gradient for the routers' logits; choose "
    'gradient_checkpointing_kwargs={"use_reentrant": False}'
)


class Tokens:
    """The positions of a batch that are tokens, and the sequence of each.

    Attributes:
        positions: positions in the batch as one row, (tokens,); None when there is no padding.
        sequence: number of each token's sequence, (tokens,).
        sequences: number of sequences.
        with_gradient: whether the model was called with gradients.
    """

    def __init__(self, lengths: Tensor, mask: Tensor | None) -> None:
        """Take (sequences,) lengths, padding included, and a mask (batch, length), 0 at padding."""
        if mask is not None and mask.dim() != 2:
            raise UsageError("a token router reads the padding from a mask of shape (batch, length)")
        self.sequences, self.with_gradient = len(lengths), torch.is_grad_enabled()
        numbers = torch.arange(len(lengths), device=lengths.device)
        self.sequence = torch.repeat_interleave(numbers, lengths)
        self.positions: Tensor | None = None
        if mask is not None and not bool(mask.all()):
            self.positions = mask.flatten().nonzero()[:, 0]
            self.sequence = self.sequence[self.positions]


class TokenRouter(nn.Linear):
    """A linear layer, without bias, from a token's normalised state to logits over the experts."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__(width, experts, bias=False)

    def forward(self, states: Tensor, tokens: Tokens) -> Tensor:  # type: ignore[override]
        """Return logits, (tokens, experts), always float32, of states, (tokens, width), without padding.

        `token_loads_of` reads whose tokens they are.
        """
        with torch.autocast(states.device.type, enabled=False):
            normed = nn.functional.layer_norm(states.float(), states.shape[-1:])
            return nn.functional.linear(normed, self.weight.float())


class TokenPass:
    """One forward pass through blocks whose tokens choose; passed through the blocks as their plan.

    `logits`: (tokens, experts) of each block so far, padding left out.
    """

    def __init__(self, tokens: Tokens, top_k: int, scaled: bool) -> None:
        self.tokens = tokens
        self.top_k = top_k
        self.scaled = scaled
        self.logits: list[Tensor] = []

    def choose(self, router: TokenRouter, hidden: Tensor) -> TokenDispatch:
        """Return the experts of the tokens of `hidden`: (batch, length, width), packed (1, tokens, width)."""
        states = hidden.reshape(-1, hidden.shape[-1])
        if self.tokens.positions is not None:
            states = states.index_select(0, self.tokens.positions)
        logits = router(states, self.tokens)
        self.logits.append(logits)
        chosen = logits.softmax(dim=-1).topk(self.top_k, dim=-1)  # (tokens, top_k)
        weights = chosen.values / chosen.values.sum(dim=-1, keepdim=True)
        scale = chosen.values.to(hidden.dtype) if self.scaled else None
        return dispatch_tokens(chosen.indices, weights, logits.shape[1], self.tokens.positions, scale)


def token_load(logits: Tensor, tokens: Tokens, top_k: int) -> Tensor:
    """Count how a block's tokens spread over the experts, (tokens, experts) -> (sequences, 2, experts).

    First the sum of the tokens' probabilities, which has a gradient; then the number of tokens that chose the
    expert, divided by `top_k`, which has none. Either adds up to the number of the text's tokens.
    """
    probabilities = logits.softmax(dim=-1)
    chosen = probabilities.detach().topk(top_k, dim=-1).indices
    shares = torch.zeros_like(probabilities).scatter(1, chosen, 1 / top_k)
    both = torch.stack([probabilities, shares], dim=1)  # (tokens, 2, experts)
    return both.new_zeros(tokens.sequences, *both.shape[1:]).index_add(0, tokens.sequence, both)


@contextmanager
def token_loads_of(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the `token_load` of each block of `model`, in order; the list is filled when this closes.

    Sums over a text's tokens have the same shape for every text, so they can ride beside the vectors through
    gradient caching and across processes: `torch.stack(loads, dim=1)` is (texts, blocks, 2, experts).
    """
    loads: list[Tensor] = []
    seen: list[tuple[Tensor, Tokens]] = []  # gradient checkpointing does not see computations in a hook

    def hook(router: TokenRouter, given: tuple[Tensor, Tokens], logits: Tensor) -> None:
        tokens = given[1]
        if tokens.with_gradient and not torch.is_grad_enabled():
            raise UsageError(REENTRANT)
        seen.append((logits, tokens))

    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, TokenRouter):
                hooks.enter_context(module.register_forward_hook(hook))
        yield loads
    # The config of the model with token routers, which may be inside `model`.
    configs: Iterator[Any] = (getattr(module, "config", None) for module in model.modules())
    top_k = next(int(config.top_k) for config in configs if getattr(config, "router", None) == "token")
    loads += [token_load(logits, tokens, top_k) for logits, tokens in seen]


def token_balance_loss(loads: Sequence[Tensor] | Tensor) -> Tensor:
    """Measure how evenly the tokens use the experts (GShard, section 2.2; Switch transformers, eq. 4 to 6).

    experts * sum_e f_e P_e, where f_e is the share of all choices that fall on expert e and P_e its mean
    probability, over the tokens of all texts, padding left out; the mean over the blocks. 1 when all experts
    are used equally, up to experts / top_k when the same ones take everything. The gradient flows through P.
    `loads`: from `token_loads_of`, one (texts, 2, experts) per block, or these stacked along dim 1.
    """
    stacked = loads if isinstance(loads, Tensor) else torch.stack(list(loads), dim=1)
    totals = stacked.sum(dim=0)  # (blocks, 2, experts)
    probabilities, shares = (totals / totals.sum(dim=-1, keepdim=True)).unbind(dim=1)
    return stacked.shape[-1] * (probabilities * shares.detach()).sum(dim=-1).mean()

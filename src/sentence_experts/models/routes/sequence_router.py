"""The learned sequence router: a block chooses its expert from the text (preprint, section 3.2.1).

The expert with the highest logit takes the whole sequence. With router "learned" its output is not scaled by
the router's probability: experts that are copies of the base's MLP give the base's vectors under any choice
of the router, and the router learns from its losses alone. With router "switch" the output of its MLP is
scaled, as in a switch transformer (Fedus et al. 2022, eq. 2): the router also learns from the vectors, which
are not the base's even before training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sentence_experts.errors import UsageError
from sentence_experts.models.layers.dispatch import Dispatch, dispatch, reorder_packed
from sentence_experts.models.routes.kinds import router_kind_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class SequenceRouter(nn.Linear):
    """A linear layer, without bias, from a sequence's state to logits over the experts."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__(width, experts, bias=False)

    def forward(  # type: ignore[override]
        self, hidden: Tensor, mask: Tensor | None = None, cu_seq_lens: Tensor | None = None
    ) -> Tensor:
        """Return logits, (sequences, experts), in float32 regardless of the precision of the model.

        `hidden` is (batch, length, width), `mask` (batch, length) with 0 at padding, which has no part in the
        state; or `hidden` is (1, tokens, width), with the packed sequences' cumulative lengths.
        """
        with torch.autocast(hidden.device.type, enabled=False):
            states = sequence_states(hidden.float(), mask, cu_seq_lens)
            return nn.functional.linear(states, self.weight.float())


def sequence_states(hidden: Tensor, mask: Tensor | None, cu_seq_lens: Tensor | None) -> Tensor:
    """Return the mean of each sequence's tokens, (sequences, width), as `SequenceRouter.forward` does."""
    if cu_seq_lens is not None:
        return torch.segment_reduce(hidden[0], "mean", lengths=cu_seq_lens.diff().long(), axis=0)
    if mask is None:
        return hidden.mean(dim=1)
    shares = mask / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return (hidden * shares[:, :, None]).sum(dim=1)


class SequencePass:
    """One forward pass through blocks that choose; `logits` are (sequences, experts) of each block so far.

    It is passed through the blocks as an argument. Modules hold no state of it, so passes do not mix when
    gradients are cached or blocks computed again.
    """

    def __init__(
        self,
        lengths: Tensor,
        mask: Tensor | None,
        cu_seq_lens: Tensor | None,
        expert_ids: Tensor | None,
        scaled: bool,
    ) -> None:
        """Begin a pass.

        Args:
            lengths: numbers of tokens, (sequences,).
            mask: attention mask of the batch.
            cu_seq_lens: cumulative lengths of packed sequences.
            expert_ids: experts that the caller chose, (sequences,).
            scaled: whether to multiply the MLPs' outputs by the routers' probabilities.
        """
        if mask is not None and mask.dim() != 2:
            raise UsageError("a learned router reads the padding from a mask of shape (batch, length)")
        self.logits: list[Tensor] = []
        self._lengths, self._mask, self._cu_seq_lens = lengths, mask, cu_seq_lens
        self._expert_ids, self._scaled = expert_ids, scaled

    def choose(self, router: SequenceRouter, hidden: Tensor) -> Dispatch:
        """Return the experts of the sequences in the block that `hidden` enters."""
        logits = router(hidden, self._mask, self._cu_seq_lens)
        self.logits.append(logits)
        chosen = logits.detach().argmax(dim=1) if self._expert_ids is None else self._expert_ids
        plan = dispatch(chosen, self._lengths, logits.shape[1])
        assert plan is not None  # argmax names no expert that is not there
        if plan.order is not None and self._cu_seq_lens is not None:  # `hidden` is moved token by token
            order, _ = reorder_packed(self._cu_seq_lens, plan.order, int(self._lengths.sum()))
            plan = Dispatch(order, plan.slices, dim=1)
        if not self._scaled:
            return plan
        probabilities = logits.softmax(dim=1).gather(1, chosen[:, None])[:, 0]
        scale = probabilities.repeat_interleave(self._lengths).view(*hidden.shape[:2], 1)
        return replace(plan, scale=scale.to(hidden.dtype))


@contextmanager
def router_logits_of(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the logits of the routers of `model` while open: (sequences, experts) per block, in order.

    The hooks are on the routers, because sentence-transformers runs the transformer past its hooks.
    """
    seen: list[Tensor] = []
    with ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, SequenceRouter):
                hooks.enter_context(module.register_forward_hook(lambda _, __, logits: seen.append(logits)))
        yield seen


@dataclass(frozen=True)
class RouterChoices:
    """The routers' logits for some texts, and the experts that follow from them.

    Attributes:
        experts: names of the experts.
        blocks: numbers of the blocks that hold experts.
        logits: float32 logits of the routers, (texts, blocks, experts).
    """

    experts: tuple[str, ...]
    blocks: tuple[int, ...]
    logits: NDArray[np.float32]

    @property
    def chosen(self) -> NDArray[np.int64]:
        """Indices of the experts that the blocks send the texts to, (texts, blocks)."""
        indices: NDArray[np.int64] = self.logits.argmax(axis=2)
        return indices

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """Softmax of the logits, (texts, blocks, experts)."""
        from scipy.special import softmax

        shares: NDArray[np.float32] = softmax(self.logits, axis=2)
        return shares


@torch.inference_mode()
def router_choices(
    encoder: SentenceTransformer, texts: Sequence[str], prompt: str = "", batch_size: int = 32
) -> RouterChoices:
    """Return the choices of the model's routers for the texts, in their order, with `prompt` in front.

    No choice depends on `batch_size`, the number of texts per batch.
    """
    from sentence_transformers.util import batch_to_device

    kind = router_kind_of(encoder)
    if kind is None or not kind.reads_texts:
        raise UsageError(
            "only learned routers (`router='learned'`) choose an expert per text and block; here the text's "
            "route chooses, or each token chooses its own"
        )
    config: Any = encoder.config
    encoder.eval()
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))  # texts of like length meet
    shape = (len(texts), len(config.expert_layers), len(config.experts))
    logits = np.zeros(shape, dtype=np.float32)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        features = encoder.preprocess([texts[row] for row in rows], prompt=prompt)
        with router_logits_of(encoder) as blocks:
            encoder[0](batch_to_device(features, encoder.device))
        logits[rows] = torch.stack(blocks, dim=1).cpu().numpy()
    return RouterChoices(tuple(config.experts), tuple(config.expert_layers), logits)

"""The contrastive loss of a batch, the known positives that it leaves out, and the losses of learned routers.

A batch has two columns of texts, anchors and positives, and one of negatives if pairs have them. Row i of the
columns is a pair; the texts of all other rows are negatives of row i, except known positives. With several
processes the texts of all of them are the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses import CachedLossMixin, RandContext
from sentence_transformers.util import cos_sim
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad, get_rank, get_world_size
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.nn.parallel import DistributedDataParallel

from sentence_experts.compat.sentence_transformers import merge_columns
from sentence_experts.models.routes.sequence_router import router_logits_of
from sentence_experts.models.routes.token_router import token_balance_loss, token_loads_of
from sentence_experts.training.config import ARGMAX_TARGET, IN_BATCH_NEGATIVES, LEARNED_TEMPERATURE
from sentence_experts.training.data import NONE

_NO_LABEL = -1


class KnownPositives(nn.Module):
    """Known positives, which are not used as each other's negatives; stores eight bytes per link or label.

    The papers count every other pair of a batch as a negative (Hallee 2025, Training strategy: a linked paper
    is assumed to be rare). In a small, dense domain it is not rare. A number stands for a paper, or for a
    group of texts that are all positives of each other, such as those of one label. It is a module without
    parameters, so that the links move to the device of the loss.
    """

    keys: Tensor
    labels: Tensor

    def __init__(self, left: Tensor, right: Tensor, count: int, labels: Tensor | None = None) -> None:
        """Make the table of links.

        Args:
            left, right: linked numbers below `count`, (links,); links have no direction.
            count: upper bound of the numbers.
            labels: numbers, and a label of each, (2, entries); those that share one are linked. Memory is
                `count` times the largest number of labels that one has.
        """
        super().__init__()
        self.count = count
        some = labels is not None and labels.numel()
        entries = torch.unique(labels, dim=1) if some else torch.empty(2, 0, dtype=torch.long)
        self.register_buffer("keys", torch.unique(self._key(left.long(), right.long())), persistent=False)
        self.register_buffer("labels", _pad(entries, count), persistent=False)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return True where two numbers are equal or linked; the two are broadcast."""
        known = left == right
        if len(self.keys):
            key = self._key(left, right)
            place = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
            known = (self.keys[place] == key) | known
        if self.labels.shape[1]:
            theirs = self.labels[right]
            for ours in self.labels[left].unbind(-1):
                known = known | ((ours[..., None] == theirs) & (theirs != _NO_LABEL)).any(-1)
        return known

    def _key(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.minimum(left, right) * self.count + torch.maximum(left, right)


def _pad(entries: Tensor, count: int) -> Tensor:
    """Return the labels of each number as a row, (count, labels), filled up with `_NO_LABEL`."""
    numbers, labels = entries  # sorted by number
    if not len(numbers):  # counting would take memory for each of `count` numbers
        return torch.full((count, 0), _NO_LABEL)
    sizes = torch.bincount(numbers, minlength=count)
    rows = torch.full((count, int(sizes.max())), _NO_LABEL)
    rows[numbers, torch.arange(len(numbers)) - (sizes.cumsum(0) - sizes)[numbers]] = labels
    return rows


def compute_router_cross_entropy(logits: Tensor, experts: Tensor) -> Tensor:
    """Return the cross-entropy of the routers' choices to the texts' domains (Hallee 2024, section 3.2.1).

    Args:
        logits: logits of the routers, (texts, blocks, experts).
        experts: expert of each text's domain, (texts,).
    """
    targets = experts[:, None].expand(logits.shape[:2])
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_balancing(logits: Tensor) -> Tensor:
    """Return the unevenness of the routers' use of experts (Fedus et al. 2022, Switch Transformers, eq. 4-6).

    experts * sum_i f_i P_i, where f_i is the share of the texts whose router prefers expert i, and P_i its
    mean probability, which alone has a gradient; the mean over the blocks. 1 if all experts are used equally,
    up to `experts` if one takes everything. `logits` is (texts, blocks, experts).
    """
    experts = logits.shape[-1]
    probabilities = logits.softmax(dim=-1).mean(dim=0)  # (blocks, experts)
    shares = one_hot(logits.argmax(dim=-1), experts).to(logits.dtype).mean(dim=0)
    return experts * (shares * probabilities).sum(dim=-1).mean()


@dataclass(frozen=True)
class RouterLoss:
    """A loss of the learned routers, on what they give for each text.

    The routers' outputs stand beside the vectors, so that their gradients are cached too and the texts of all
    processes count.

    Attributes:
        collect: a context that collects one tensor per block, (texts, ...), in a model's forward passes.
        loss: function of all outputs, (texts, blocks, ...), and the experts of the texts' domains, (texts,).
        by_domain: whether training texts go to their domain's expert instead of the router's choice.
    """

    collect: Callable[[nn.Module], AbstractContextManager[list[Tensor]]]
    loss: Callable[[Tensor, Tensor], Tensor]
    by_domain: bool = False


def sequence_router_loss(to_domain: float = 1.0, balance: float = 0.0, by_domain: bool = True) -> RouterLoss:
    """Return the loss of routers that choose one expert per text, a sum of two weighted parts."""

    def loss(logits: Tensor, experts: Tensor) -> Tensor:
        return to_domain * compute_router_cross_entropy(logits, experts) + balance * load_balancing(logits)

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


class ContrastiveLoss(CachedLossMixin, nn.Module):
    """Contrastive loss with in-batch negatives, in one of three variants (`kind`).

    - "in_batch_negatives": cross-entropy over cosines divided by the temperature of the anchor's route,
      anchors to positives and negatives (InfoNCE; Romero 2025, sections 2.1 and 3.2; what
      sentence-transformers calls MultipleNegativesRankingLoss).
    - "argmax_target": of the 2025 paper (Hallee 2025, Training strategy). L~(A, B) ranks the rows of A B^T by
      dot products; the target of row i is argmax_j (A_j . A_i + B_j . B_i), the pair of the batch that is
      most like pair i in both columns: i itself, unless another pair has longer vectors in about the same
      direction. The loss is L~(A, B) + L~(B, A). The paper sums over the rows; this is the mean, so that
      neither the gradient, which is clipped, nor the weight of a router's loss depends on the batch size.
    - "learned_temperature": of the preprint (Hallee 2024, section 3.3): dot products over a learned
      temperature, the mean of both directions. The paper does not say more. Here 1 / temperature is
      exp(log_scale), as in CLIP (Radford et al. 2021), trained with the model's learning rate and without
      weight decay.

    Each process computes the loss of its anchors. The mean over the processes is the loss of the whole
    batch, and the mean of the gradients, which DistributedDataParallel computes, is its gradient.

    Gradient caching (Gao et al. 2021) embeds a batch in small parts; loss and gradients stay the same,
    dropout included.

    Args:
        model: the encoder that is trained.
        temperatures: temperature of each route, by its number in the labels; learning starts at the first.
        kind: one of `config.LOSSES`.
        cache_mini_batch: gradient caching with this number of texts at once; None for all at once.
        known: texts that are positives of each other, and so no negatives; None: every text of another
            pair is a negative.
        router: the loss of the model's learned routers; None for a model without.
        experts: experts of the anchors and of the positives of each route; needed with `router`.
    """

    temperatures: Tensor
    experts: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        temperatures: Sequence[float] = (0.05,),
        kind: str = IN_BATCH_NEGATIVES,
        *,
        cache_mini_batch: int | None = None,
        known: KnownPositives | None = None,
        router: RouterLoss | None = None,
        experts: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__()
        self.model, self.kind, self.known, self.router = model, kind, known, router
        self.uses_gradient_cache = cache_mini_batch is not None
        # Without caching the whole batch is one part.
        self.mini_batch_size = cache_mini_batch or torch.iinfo(torch.int64).max
        self.register_buffer("temperatures", torch.tensor(temperatures), persistent=False)
        self.register_buffer("experts", torch.tensor(experts or [(0, 0)]), persistent=False)
        if kind == LEARNED_TEMPERATURE:
            self.log_scale = nn.Parameter(torch.tensor(-math.log(temperatures[0])))

    def learned(self) -> dict[str, float]:
        """Return the values that the loss itself has learned: the temperature, or nothing."""
        return {"temperature": math.exp(-self.log_scale.item())} if self.kind == LEARNED_TEMPERATURE else {}

    def own_weights(self) -> dict[str, Tensor]:
        """Return the weights of the loss that are not the model's, by name."""
        own = self.state_dict().items()
        return {name: value for name, value in own if name.split(".")[0] not in ("model", "known")}

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: features of each column, as the model takes them.
            labels: integers, (batch, 2 + columns): route, source, then the number of each column's text
                (`known` tells which numbers are positives of each other), `NONE` for a negative that is
                left out.
        """
        columns = [dict(features) for features in sentence_features]
        if self.router is not None and self.router.by_domain:
            for place, features in enumerate(columns):
                features["expert_ids"] = self.experts[labels[:, 0], min(place, 1)]
        distributed = isinstance(self.model, DistributedDataParallel)
        # Several forward passes before one backward pass are not for DistributedDataParallel: it would take
        # the experts that the last one leaves out for unused, though another column was routed to them.
        together = merge_columns(columns) if distributed and not self.uses_gradient_cache else None
        if together is not None:
            (vectors,) = self.embed_minibatch_iter(together, True, False)
            return self.calculate_loss([[part] for part in vectors[0].chunk(len(columns))], labels)
        if self.uses_gradient_cache or distributed:
            return self.forward_cached(columns, labels)
        parts = [list(self.embed_minibatch_iter(features, True, False)) for features in columns]
        return self.calculate_loss([[vectors for vectors, _ in column] for column in parts], labels)

    def embed_minibatch(self, *args: Any, **kwargs: Any) -> tuple[Tensor, RandContext | None]:
        """Return vectors of some texts, (texts, width), each followed by what the routers give for it."""
        if self.router is None:
            return super().embed_minibatch(*args, **kwargs)
        with self.router.collect(self.model) as blocks:
            vectors, random_state = super().embed_minibatch(*args, **kwargs)
        outputs = torch.stack(blocks, dim=1)  # (texts, blocks, ...)
        self._outputs_shape = outputs.shape[1:]
        return torch.cat([vectors, outputs.flatten(1)], dim=1), random_state

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of what `embed_minibatch` gave, one list of parts per column."""
        assert labels is not None
        columns = [torch.cat(parts) for parts in reps]
        with torch.autocast(columns[0].device.type, enabled=False):
            # Dot products of long vectors would lose a unit or more in bfloat16.
            loss = self._loss([column.float() for column in columns], labels)
        if with_backward:
            loss.backward()
            loss = loss.detach()
        return loss

    def _loss(self, columns: list[Tensor], labels: Tensor) -> Tensor:
        """Return the contrastive loss of this process's anchors plus the routers' loss on all texts."""
        extra: Tensor | float = 0.0
        if self.router is not None:
            width = columns[0].shape[1] - self._outputs_shape.numel()
            outputs = _gather(torch.cat([column[:, width:] for column in columns]))
            sides = torch.tensor([min(place, 1) for place in range(len(columns))], device=labels.device)
            experts = _gather(self.experts[labels[:, 0]][:, sides].T.flatten())
            is_there = _gather(labels[:, 2:].T.flatten()) != NONE
            extra = self.router.loss(outputs.unflatten(1, self._outputs_shape)[is_there], experts[is_there])
            columns = [column[:, :width] for column in columns]
        own = torch.arange(len(labels), device=labels.device) + get_rank() * len(labels)
        contrastive = self._in_batch_negatives if self.kind == IN_BATCH_NEGATIVES else self._both_ways
        return contrastive(columns, labels, own) + extra

    def _in_batch_negatives(self, columns: list[Tensor], labels: Tensor, own: Tensor) -> Tensor:
        candidates = torch.cat([_gather(column.contiguous()) for column in columns[1:]])
        scores = cos_sim(columns[0], candidates) / self.temperatures[labels[:, 0], None]
        return self._ranking(scores, own, own, labels[:, 2], _gather(labels)[:, 3:].T.flatten())

    def _both_ways(self, columns: list[Tensor], labels: Tensor, own: Tensor) -> Tensor:
        first, second = columns
        firsts, seconds, numbers = _gather(first), _gather(second), _gather(labels)
        there, back = first @ seconds.T, second @ firsts.T
        if self.kind == LEARNED_TEMPERATURE:
            targets = own
            # The mean over the processes has the mean of their gradients.
            scale = _gather(self.log_scale.exp()[None]).mean()
            there, back = there * scale, back * scale
        else:
            # An argmax is a constant to autograd: targets have no gradient.
            targets = (first @ firsts.T + second @ seconds.T).argmax(dim=1)
        both = self._ranking(there, targets, own, labels[:, 2], numbers[:, 3])
        both = both + self._ranking(back, targets, own, labels[:, 3], numbers[:, 2])
        return both / (1 if self.kind == ARGMAX_TARGET else 2)

    def _ranking(
        self, scores: Tensor, targets: Tensor, own: Tensor, rows: Tensor, candidates: Tensor
    ) -> Tensor:
        """Return the mean cross-entropy of the rows of scores to their targets, without known positives.

        The columns of the targets, and of the rows' own pairs, always take part. `rows` and `candidates` are
        the numbers of the texts.
        """
        left_out = (candidates == NONE).repeat(len(rows), 1)
        if self.known is not None:
            left_out |= self.known(rows[:, None], candidates.clamp(min=0))
            for columns in (targets, own):
                left_out[torch.arange(len(rows), device=rows.device), columns] = False
        return cross_entropy(scores.masked_fill(left_out, -torch.inf), targets)


def _gather(rows: Tensor) -> Tensor:
    """Return the rows of all processes, in their order."""
    if get_world_size() == 1:
        return rows
    gathered: Tensor = all_gather_with_grad(rows) if rows.requires_grad else all_gather(rows)
    return gathered

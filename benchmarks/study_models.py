"""Models of the studies: training step by step, cosines of test pairs.

`train` writes a checkpoint at every validation and keeps the best one. A study that wants the test figure at
several steps of one run, or the processor seconds of the steps alone, trains in this loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sentence_experts as se
from measuring import BASE
from sentence_experts.compat.sentence_transformers import transformer_of

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

WARMUP_STEPS = 10
TEMPERATURE = 0.05


def first_blocks(blocks: int, base: str = BASE) -> SentenceTransformer:
    """The base with its first blocks only, on the CPU."""
    encoder = se.load(base, device="cpu")
    model = transformer_of(encoder)
    model.encoder.layer = model.encoder.layer[:blocks]
    model.config.num_hidden_layers = blocks
    return encoder


class Batch(NamedTuple):
    """Pairs of one route: texts behind its prompt. Texts of equal groups are no negatives of each other."""

    anchors: list[str]
    positives: list[str]
    groups: Sequence[int]


class FasterTokens:
    """Embeddings of some tokens that learn at a multiple of the rate: their steps are made so much longer."""

    def __init__(self, model: SentenceTransformer, tokens: Sequence[str], factor: float) -> None:
        """Args:
        model: that is trained.
        tokens: whose embeddings learn faster, as they stand in a text.
        factor: of the rate.
        """
        self._weight = transformer_of(model).get_input_embeddings().weight
        self._rows = [model.tokenizer(token, add_special_tokens=False)["input_ids"][0] for token in tokens]
        self._factor = factor

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the optimizer make its step, then lengthen that of the tokens."""
        before = self._weight.detach()[self._rows].clone()
        optimizer.step()
        rows = self._weight.detach()
        rows[self._rows] = before + self._factor * (rows[self._rows] - before)


def train_steps(
    model: SentenceTransformer,
    batches: Iterable[Batch],
    learning_rate: float,
    seed: int,
    after: Callable[[int, float], None] = lambda step, seconds: None,
    max_length: int | None = None,
    faster: FasterTokens | None = None,
) -> float:
    """Train in place, one step a batch: AdamW, a constant rate after `WARMUP_STEPS`, gradients clipped at 1.

    Args:
        model: all weights that require a gradient are trained.
        batches: one per step.
        learning_rate: the rate after the warmup.
        seed: of dropout.
        after: called after each step with its number, from 1, and the seconds so far.
        max_length: maximum number of tokens per text, while training.
        faster: tokens whose embeddings have a higher rate.

    Returns:
        The processor seconds of all steps, without what `after` takes.
    """
    import torch

    from sentence_experts.training.losses import ContrastiveLoss, KnownPositives

    none = torch.zeros(0, dtype=torch.long)
    loss = ContrastiveLoss(model, [TEMPERATURE], known=KnownPositives(none, none, 2**31))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=learning_rate, weight_decay=0.01, fused=True)
    torch.manual_seed(seed)
    before, model.max_seq_length = model.max_seq_length, max_length or model.max_seq_length
    spent = 0.0
    for step, batch in enumerate(batches, 1):
        started = time.process_time()
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, step / WARMUP_STEPS)
        groups = torch.tensor(list(batch.groups))
        labels = torch.stack([torch.zeros_like(groups), torch.zeros_like(groups), groups, groups], dim=1)
        loss([model.preprocess(batch.anchors), model.preprocess(batch.positives)], labels).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        faster.step(optimizer) if faster else optimizer.step()
        optimizer.zero_grad()
        spent += time.process_time() - started
        state = torch.get_rng_state()  # measuring changes nothing of the training
        after(step, spent)
        torch.set_rng_state(state)
    model.max_seq_length = before
    model.eval()
    return spent


def cosines(
    model: SentenceTransformer,
    first: Sequence[str],
    second: Sequence[str],
    prompt: str | None = None,
    max_length: int | None = None,
) -> NDArray[np.float64]:
    """Cosines of pairs of texts behind a prompt, (pairs,); texts in several pairs are encoded once."""
    texts = list(dict.fromkeys([*first, *second]))
    place = {text: number for number, text in enumerate(texts)}
    model.eval()
    before, model.max_seq_length = model.max_seq_length, max_length or model.max_seq_length
    behind = [f"{prompt or ''}{text}" for text in texts]
    vectors = model.encode(behind, batch_size=64, normalize_embeddings=True, show_progress_bar=False)
    model.max_seq_length = before
    left, right = (vectors[[place[text] for text in side]] for side in (first, second))
    found: NDArray[np.float64] = (left * right).sum(1).astype(np.float64)
    return found

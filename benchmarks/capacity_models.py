"""Models of `capacity.py`, trained step by step on token ids that are made once, on the CPU or a GPU."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, normalize

import sentence_experts as se
from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.pairs.labels import Labels, Rows
from study_models import TEMPERATURE, WARMUP_STEPS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH = 16  # pairs
MEASUREMENTS = 6  # on validation texts in a training
HEAD_FACTOR = 10.0  # heads that are trained with the base have so much higher a rate
ENCODED = {"cpu": 64, "cuda": 512}  # texts at once
OWNED = (".experts.", ".adapters.", "heads.")  # of one route, in names of weights

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Arm:
    """Ways by which a model gets its routes, which of its weights are trained, and at which rates.

    Attributes:
        kind: base, head (linear maps of the frozen base's vectors), blocks (the settings `extend` lead to
            trained blocks), joint (linear maps that are trained with the base) or separate (a model a route).
        extend: settings of `extend`.
        rates: learning rates of which validation chooses one.
        rank: of linear maps, None for any.
        mixed: batches of all routes, not of one.
        tokens: of a text at most, None for those of the set.
    """

    kind: str
    extend: Mapping[str, Any] | None = None
    rates: Sequence[float] = ()
    rank: int | None = None
    mixed: bool = False
    tokens: int | None = None

    @property
    def frozen(self) -> bool:
        """Whether only adapters are trained."""
        return bool(self.extend) and self.extend.get("kind") == "adapter"  # type: ignore[union-attr]


class Tokens:
    """Token ids of texts behind each route's prompt, on the device; those of one prompt are kept once."""

    def __init__(
        self, encoder: SentenceTransformer, texts: Sequence[str], prompts: Mapping[str, str], tokens: int
    ) -> None:
        """Args:
        encoder: whose tokenizer is used.
        texts: all texts of the set.
        prompts: route -> what its texts begin with.
        tokens: of a text with its prompt, at most.
        """
        before, encoder.max_seq_length = encoder.max_seq_length, tokens
        self._prompts, self._kept = dict(prompts), {}
        for prompt in dict.fromkeys(prompts.values()):
            inputs = encoder.preprocess([f"{prompt}{text}" for text in texts])
            lengths = inputs["attention_mask"].sum(1)
            self._kept[prompt] = inputs["input_ids"].to(encoder.device), lengths.numpy()
        encoder.max_seq_length = before

    def inputs(self, route: str, rows: Rows) -> dict[str, Tensor]:
        """The batch of some texts under a route, as short as its longest text."""
        ids, lengths = self._kept[self._prompts[route]]
        own = torch.from_numpy(lengths[rows]).to(ids.device, non_blocking=True)
        longest = int(lengths[rows].max())
        chosen = ids[torch.from_numpy(rows).to(ids.device, non_blocking=True), :longest]
        mask = torch.arange(longest, device=ids.device) < own[:, None]
        return {"input_ids": chosen, "attention_mask": mask.long()}

    def by_length(self, route: str, rows: Rows) -> Rows:
        """Places of the rows in the order of their lengths."""
        order: Rows = np.argsort(self._kept[self._prompts[route]][1][rows], kind="stable")
        return order


class RouteModel(nn.Module):
    """An encoder for all routes, or one for each, and perhaps a linear map for each.

    Encoders with instructions, adapters or experts know the route by how a text begins.
    """

    def __init__(self, base: SentenceTransformer, routes: Sequence[str], arm: Arm) -> None:
        super().__init__()
        self.routes = list(routes)
        self.encoder = base
        prompts: dict[str, str] = dict.fromkeys(routes, "")
        if arm.extend is not None:
            self.encoder = se.extend(base, routes=self.routes, **arm.extend).to(base.device)
            prompts = {route: self.encoder.prompts[route] or "" for route in routes}
        self.prompts = prompts
        copies = len(self.routes) if arm.kind == "separate" else 1
        transformer: Any = transformer_of(self.encoder)
        self.parts = nn.ModuleList(copy.deepcopy(transformer) for _ in range(copies))
        width: int = transformer.config.hidden_size
        heads = [nn.Linear(width, width) for _ in self.routes if arm.kind == "joint"]
        for head in heads:
            nn.init.eye_(head.weight)
            nn.init.zeros_(head.bias)
        self.heads = nn.ModuleList(heads)
        self.heads.to(base.device)
        for name, weight in self.named_parameters():
            trained = name.startswith(("parts.", "heads.")) and ".pooler." not in name
            weight.requires_grad_(trained and (not arm.frozen or ".adapters." in name))

    def forward(self, route: str, inputs: Mapping[str, Tensor]) -> Tensor:
        """Vectors under a route, (texts, dimensions), of any length."""
        number = self.routes.index(route)
        part = self.parts[number if len(self.parts) > 1 else 0]
        hidden = part(**inputs)["last_hidden_state"].float()  # also within `half_precision`
        mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        found: Tensor = self.heads[number](pooled) if len(self.heads) else pooled
        return found

    def trained(self) -> dict[str, nn.Parameter]:
        """The weights that are trained."""
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}

    def counts(self) -> dict[str, int]:
        """Numbers of trained weights: of all routes together, and owned by one route."""
        owned = sum(
            weight.numel()
            for name, weight in self.trained().items()
            if len(self.parts) > 1 or any(part in name for part in OWNED)
        )
        whole = sum(weight.numel() for weight in self.trained().values())
        return {"shared": whole - owned, "owned": owned // len(self.routes)}

    @torch.no_grad()
    def encode(self, tokens: Tokens, route: str, rows: Rows) -> Vectors:
        """Vectors of some texts under a route, of any length."""
        self.eval()
        order = tokens.by_length(route, rows)
        size = ENCODED[self.encoder.device.type]
        parts = [
            self(route, tokens.inputs(route, rows[order[at : at + size]])).float().cpu()
            for at in range(0, len(rows), size)
        ]
        found = np.empty((len(rows), parts[0].shape[1]), np.float32)
        found[order] = torch.cat(parts).numpy()
        return found


@contextmanager
def half_precision(device: str) -> Iterator[None]:
    """Products of matrices in bfloat16, which is twice as fast where the processor has it.

    Attention is plain products too: torch's fused one is slow on its way back on a CPU.
    """
    plain = [SDPBackend.MATH] if device == "cpu" else [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with torch.autocast(device, torch.bfloat16), sdpa_kernel(plain):
        yield


def info_nce(anchors: Tensor, positives: Tensor, known: NDArray[np.bool_]) -> Tensor:
    """The mean loss of pairs, each against the other positives but those known to be like its anchor.

    Args:
        anchors, positives: vectors of length 1, (pairs, dimensions).
        known: (pairs, pairs), whether positive j is no negative of anchor i; the diagonal is not read.
    """
    left_out = torch.from_numpy(known & ~np.eye(len(known), dtype=bool)).to(anchors.device)
    scores = (anchors @ positives.T / TEMPERATURE).masked_fill(left_out, -torch.inf)
    return cross_entropy(scores, torch.arange(len(scores), device=scores.device))


@dataclass(frozen=True)
class Known:
    """Knowledge that training may use: its rows, route -> their labels, and their groups."""

    rows: Rows
    labels: Mapping[str, Labels]
    groups: Rows

    def draw(self, route: str, number: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Alike pairs of a route: places among the rows."""
        first, second = self.labels[route].draw_pairs(number, rng, self.groups)
        return first, second

    def alike(self, route: str, first: Rows, second: Rows) -> NDArray[np.bool_]:
        """Whether texts share a label of the route, or are of one group: (first, second)."""
        same_group = self.groups[first][:, None] == self.groups[second]
        found: NDArray[np.bool_] = self.labels[route].sharing(first, second) | same_group
        return found


def batch_loss(
    model: RouteModel, tokens: Tokens, known: Known, routes: Sequence[str], rng: np.random.Generator
) -> Tensor:
    """The loss of a batch of pairs, in equal parts of some routes; each text behind its route's prompt."""
    size = BATCH // len(routes)
    drawn = [(route, *known.draw(route, size, rng)) for route in routes]
    drawn = [each for each in drawn if len(each[1])]
    vectors = []
    for route, first, second in drawn:
        both = model(route, tokens.inputs(route, known.rows[np.concatenate([first, second])]))
        vectors.append(normalize(both, dim=1).split(len(first)))
    anchors, positives = (torch.cat(side) for side in zip(*vectors, strict=True))
    seconds = np.concatenate([second for _, _, second in drawn])
    likes = np.concatenate([known.alike(route, first, seconds) for route, first, _ in drawn])
    return info_nce(anchors, positives, likes)


def train_model(
    model: RouteModel, tokens: Tokens, known: Known, rate: float, seed: int, steps: int, mixed: bool
) -> Iterator[tuple[int, float]]:
    """Train in place: AdamW, a rate that rises, then falls to 0, gradients clipped; routes take turns.

    Yields the step and the processor seconds so far, several times, the last step among them.
    """
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    weights = model.trained()
    heads = {name for name in weights if name.startswith("heads.")}
    rates = {rate: weights.keys() - heads, HEAD_FACTOR * rate: heads}
    groups = [
        {"params": [weights[name] for name in weights if name in names], "full": full}
        for full, names in rates.items()
        if names
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.01, fused=True)
    measured = set(np.linspace(0, steps, MEASUREMENTS + 1).round().astype(int).tolist())
    spent, started = 0.0, time.process_time()
    for step in range(1, steps + 1):
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = group["full"] * min(step / WARMUP_STEPS, 1 - (step - 1) / steps)
        turn = model.routes if mixed else [model.routes[step % len(model.routes)]]
        with half_precision(model.encoder.device.type):
            loss = batch_loss(model, tokens, known, turn, rng)
        loss.backward()
        nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step in measured:
            spent += time.process_time() - started
            state = torch.get_rng_state()
            yield step, spent
            torch.set_rng_state(state)
            started = time.process_time()

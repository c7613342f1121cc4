"""Routes: the token ids that a sequence begins with, and the part of the model that they choose.

The route travels inside the sequence: one domain token in place of [CLS] (Hallee 2025, "Mixture of Experts"),
or the instruction in front of the text (MoTE, section 3.1: R maps an instruction to an expert). Both are the
same thing here: a sequence takes the route whose token ids it begins with. Several may lead to one expert; a
route may own a head or an adapter on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

UNKNOWN = -1
ANY_TOKEN = -1


@dataclass(frozen=True)
class Route:
    """A route to an expert.

    Attributes:
        name: name of the route, for `prompt_name`.
        text: prompt in front of the text ("[COPD]", "search query: ").
        token_ids: token ids that the sequence then begins with, the tokenizer's leading token included.
        expert: index of the expert.
        head: index of the route's head; None for a route without one.
        adapter: index of the route's low-rank adapter; None for a route without one.
        lead: token that the model reads in the place of the route's token, so that the route differs from
            the one that it sits on by its head or adapter alone; None where it reads the route's token.
    """

    name: str
    text: str
    token_ids: tuple[int, ...]
    expert: int
    head: int | None = None
    adapter: int | None = None
    lead: int | None = None

    @property
    def kind(self) -> str:
        """Kind of weights that the route owns: "head", "adapter" or "expert"."""
        if self.head is not None:
            return "head"
        return "expert" if self.adapter is None else "adapter"

    def to_json(self) -> dict[str, Any]:
        """Return the route as plain JSON, for the model's config."""
        fields = {**asdict(self), "token_ids": list(self.token_ids)}
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Route:
        """Return the route that `to_json` wrote."""
        return cls(**{**fields, "token_ids": tuple(fields["token_ids"])})


def is_domain_route(route: Route, config: Any) -> bool:
    """Return whether a route is a domain token; otherwise it is an instruction."""
    return bool(config.has_domain_tokens) and len(route.token_ids) == 1


def describe(routes: Sequence[Route]) -> str:
    """Return the known routes and how to give one, for error messages."""
    if not routes:
        return "this model has no routes, since learned routers choose its experts: leave the route out"
    known = ", ".join(f"{route.name} ({route.text!r})" for route in routes)
    name, text = routes[0].name, routes[0].text
    how = f"give one (`route={name!r}`; `prompt_name` in the model's own `encode`)"
    return f"known routes are {known}: {how}, or begin each text with {text!r}"


# (expert, adapter or -1, head or -1), which the sequences of a part of a batch have in common.
Owner = tuple[int, int, int]


@lru_cache(maxsize=256)
def owners_of(routes: tuple[Route, ...], experts: int) -> tuple[list[Owner], list[Owner]]:
    """Return the owners by expert and then by route, and the distinct owners in a batch's order."""
    led = [(expert, -1, -1) for expert in range(experts)]
    for route in routes:
        adapter, head = (-1 if number is None else number for number in (route.adapter, route.head))
        led.append((route.expert, adapter, head))
    return led, sorted({*led})


def sort_keys(routes: tuple[Route, ...], experts: int, numbers: Tensor, are_experts: bool = False) -> Tensor:
    """Return the place of each sequence's owner in a batch's order, (sequences,); UNKNOWN for a stray number.

    Args:
        routes: known routes.
        experts: number of experts.
        numbers: number of each sequence's route, or expert if `are_experts`, (sequences,).
        are_experts: whether they are numbers of experts.
    """
    return look_up(_keys(routes, experts, are_experts, numbers.device), numbers)


@lru_cache(maxsize=256)
def _keys(routes: tuple[Route, ...], experts: int, are_experts: bool, device: torch.device) -> Tensor:
    led, owners = owners_of(routes, experts)
    return _constant([owners.index(one) for one in (led[:experts] if are_experts else led[experts:])], device)


@lru_cache(maxsize=256)
def _make_patterns(routes: tuple[Route, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the token ids, (routes, longest), longest first, filled up with ANY_TOKEN; and the routes."""
    by_length = sorted(range(len(routes)), key=lambda number: -len(routes[number].token_ids))
    longest = max(len(route.token_ids) for route in routes)
    rows = [routes[number].token_ids for number in by_length]
    filled = [[*row, *[ANY_TOKEN] * (longest - len(row))] for row in rows]
    return _constant(filled, device), _constant(by_length, device)


def _constant(values: Any, device: torch.device) -> Tensor:
    """Return a tensor that serves encoding and training: it is made outside inference mode."""
    with torch.inference_mode(False):
        return torch.tensor(values, device=device)


def _find_bounds(
    input_ids: Tensor, attention_mask: Tensor | None, cu_seq_lens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Find where each sequence begins, and its row ends, in `input_ids.flatten()`: two of (sequences,)."""
    if cu_seq_lens is not None:
        return cu_seq_lens[:-1].long(), cu_seq_lens[1:].long()
    batch, length = input_ids.shape
    rows = torch.arange(batch, device=input_ids.device) * length
    first = 0 if attention_mask is None else attention_mask.to(torch.int8).argmax(dim=1)
    return rows + first, rows + length


def routes_of(
    routes: tuple[Route, ...],
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    cu_seq_lens: Tensor | None = None,
) -> Tensor:
    """Return the number of each sequence's route, (sequences,); UNKNOWN where it begins with none.

    The longest matching route wins, so a route may begin like another one.

    Args:
        routes: known routes.
        input_ids: token ids, (batch, length); (1, tokens) when sequences are packed one after the other.
        attention_mask: mask, (batch, length), 0 at padding on either side; None means no padding.
        cu_seq_lens: cumulative lengths of packed sequences, (sequences + 1,); None when rows are sequences.
    """
    patterns, numbers = _make_patterns(routes, input_ids.device)
    starts, ends = _find_bounds(input_ids, attention_mask, cu_seq_lens)
    offsets = torch.arange(patterns.shape[1], device=starts.device)
    positions = starts[:, None] + offsets  # (sequences, longest)
    window = input_ids.flatten()[positions.clamp(max=input_ids.numel() - 1)]
    window = window.masked_fill(positions >= ends[:, None], UNKNOWN - 1)  # a token that no route has
    matches = ((window[:, None, :] == patterns) | (patterns == ANY_TOKEN)).all(dim=-1)  # (sequences, routes)
    chosen = numbers[matches.int().argmax(dim=1)]
    return torch.where(matches.any(dim=1), chosen, UNKNOWN)


def experts_of(
    routes: tuple[Route, ...],
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    cu_seq_lens: Tensor | None = None,
) -> Tensor:
    """Return the expert of each sequence, (sequences,), as `routes_of` does the route."""
    experts = _constant([route.expert for route in routes], input_ids.device)
    return look_up(experts, routes_of(routes, input_ids, attention_mask, cu_seq_lens))


def look_up(values: Tensor, numbers: Tensor) -> Tensor:
    """Return the value of each number, UNKNOWN for numbers that have none."""
    known = (numbers >= 0) & (numbers < len(values))
    return torch.where(known, values[numbers.clamp(0, len(values) - 1)], UNKNOWN)


def with_leads(routes: tuple[Route, ...], input_ids: Tensor) -> Tensor:
    """Put each route's `lead`, if it has one, in the place of its token."""
    for route in routes:
        if route.lead is not None:
            input_ids = input_ids.masked_fill(input_ids == route.token_ids[0], route.lead)
    return input_ids


def without_inner_route_tokens(
    routes: tuple[Route, ...],
    replacement: int,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    cu_seq_lens: Tensor | None = None,
) -> Tensor:
    """Replace every leading route token in `input_ids` that does not begin its sequence.

    This is for models with domain tokens, in which every route begins with its token.

    The tokenizer lets a route token through inside a text only right after another special token, as in
    "x [SEP][COPD]", because it looks at the pieces between special tokens one by one.
    """
    patterns, _ = _make_patterns(routes, input_ids.device)
    # Not torch.isin, which has no form in ONNX.
    inner = (input_ids[:, :, None] == patterns[:, 0]).any(dim=2).flatten()
    starts, _ = _find_bounds(input_ids, attention_mask, cu_seq_lens)
    inner[starts] = False
    return input_ids.masked_fill(inner.view_as(input_ids), replacement)

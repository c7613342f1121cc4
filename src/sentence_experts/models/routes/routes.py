"""Routes: the token ids that a sequence begins with, and the expert that they choose.

The route travels inside the sequence: one domain token in place of [CLS] (Hallee 2025, "Mixture of Experts"),
or the instruction in front of the text (MoTE, section 3.1: R maps an instruction to an expert). Both are the
same thing here: a sequence takes the route whose token ids it begins with. Several may lead to one expert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sentence_experts.errors import RouteError

UNKNOWN = -1
ANY_TOKEN = -1


@dataclass(frozen=True)
class Route:
    """One way to an expert.

    Attributes:
        name: what `prompt_name` takes.
        text: what stands in front of the text ("[COPD]", "search query: ").
        token_ids: what the sequence then begins with, the tokenizer's own leading token included.
        expert: the expert's index.
    """

    name: str
    text: str
    token_ids: tuple[int, ...]
    expert: int

    def to_json(self) -> dict[str, Any]:
        """Return the route as plain JSON, for the model's config."""
        return {**asdict(self), "token_ids": list(self.token_ids)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Route:
        """Return the route that `to_json` wrote."""
        return cls(fields["name"], fields["text"], tuple(fields["token_ids"]), int(fields["expert"]))


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


@lru_cache(maxsize=256)
def _patterns(routes: tuple[Route, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the token ids, (routes, longest), longest first, filled up with ANY_TOKEN; and the experts."""
    by_length = sorted(routes, key=lambda route: -len(route.token_ids))
    longest = len(by_length[0].token_ids)
    rows = [[*route.token_ids, *[ANY_TOKEN] * (longest - len(route.token_ids))] for route in by_length]
    # Made outside inference mode: the same tensors serve encoding and training.
    with torch.inference_mode(False):
        experts = torch.tensor([route.expert for route in by_length], device=device)
        return torch.tensor(rows, device=device), experts


def sequence_bounds(
    input_ids: Tensor, attention_mask: Tensor | None, cu_seq_lens: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Find where each sequence begins, and its row ends, in `input_ids.flatten()`: two of (sequences,).

    Args:
        input_ids: (batch, length); (1, tokens) when sequences are packed one after the other.
        attention_mask: (batch, length), 0 at padding on either side; None means no padding.
        cu_seq_lens: (sequences + 1,) the packed sequences' cumulative lengths, None when rows are sequences.
    """
    if cu_seq_lens is not None:
        return cu_seq_lens[:-1].long(), cu_seq_lens[1:].long()
    batch, length = input_ids.shape
    rows = torch.arange(batch, device=input_ids.device) * length
    first = 0 if attention_mask is None else attention_mask.to(torch.int8).argmax(dim=1)
    return rows + first, rows + length


def experts_of(
    routes: tuple[Route, ...],
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    cu_seq_lens: Tensor | None = None,
) -> Tensor:
    """Return the expert of each sequence, (sequences,); UNKNOWN where a sequence begins with no route.

    The longest matching route wins, so a route may begin like another one.
    """
    patterns, experts = _patterns(routes, input_ids.device)
    starts, ends = sequence_bounds(input_ids, attention_mask, cu_seq_lens)
    offsets = torch.arange(patterns.shape[1], device=starts.device)
    positions = starts[:, None] + offsets  # (sequences, longest)
    window = input_ids.flatten()[positions.clamp(max=input_ids.numel() - 1)]
    window = window.masked_fill(positions >= ends[:, None], UNKNOWN - 1)  # a token that no route has
    matches = ((window[:, None, :] == patterns) | (patterns == ANY_TOKEN)).all(dim=-1)  # (sequences, routes)
    chosen = experts[matches.int().argmax(dim=1)]
    return torch.where(matches.any(dim=1), chosen, UNKNOWN)


def without_inner_route_tokens(
    routes: tuple[Route, ...],
    replacement: int,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    cu_seq_lens: Tensor | None = None,
) -> Tensor:
    """`input_ids` with every leading route token that does not begin its sequence replaced.

    For models with domain tokens, whose routes all begin with their own token.

    The tokenizer lets a route token through inside a text only right after another special token, as in
    "x [SEP][COPD]", because it looks at the pieces between special tokens one by one.
    """
    patterns, _ = _patterns(routes, input_ids.device)
    inner = torch.isin(input_ids, patterns[:, 0]).flatten()
    starts, _ = sequence_bounds(input_ids, attention_mask, cu_seq_lens)
    inner[starts] = False
    return input_ids.masked_fill(inner.view_as(input_ids), replacement)


def no_route_error(routes: Sequence[Route], expert_ids: Tensor, auto_routes: bool = False) -> RouteError:
    """Return the error for a batch in which some sequence has no known route."""
    unknown = int((expert_ids == UNKNOWN).sum())
    auto = '; prompt_name="auto" is for a model that sentence_experts.load(path) opens' if auto_routes else ""
    return RouteError(
        f"{unknown} of the {len(expert_ids)} texts in a batch begin with no known route; "
        f"{describe(routes)}{auto}"
    )

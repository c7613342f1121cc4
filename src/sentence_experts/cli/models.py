"""`sentence-experts extend|add-route|drop-route|export`: make and change models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from sentence_experts.cli.console import show
from sentence_experts.cli.options import Model, ModelOut, Overwrite, check_there
from sentence_experts.corpus.corpus_folder import MANIFEST, following
from sentence_experts.errors import UsageError
from sentence_experts.models.export.export_config import ExportConfig
from sentence_experts.models.sources import check_source
from sentence_experts.models.surgery.extend_config import AddRouteConfig, ExtendConfig
from sentence_experts.retrieval.taught import DEFAULT

if TYPE_CHECKING:
    from sentence_experts.models.encoder import ExpertEncoder


def extend(
    model: Model,
    out: ModelOut,
    config: ExtendConfig,
    experts: Annotated[
        list[str] | None, Field(description="Names of experts, such as copd,cvd,cancer")
    ] = None,
    routes: Annotated[
        list[str] | None, Field(description="Names of routes of any --kind, in place of --experts")
    ] = None,
    domains: Annotated[Path | None, typer.Option(help="Pairs folder: one route per domain in it")] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(
            help="Task file or tasks folder: one route per instruction, with its experts; together with "
            "--experts or --domains, or alone"
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Give a BERT, ModernBERT or NomicBERT encoder an expert, an adapter or a head per route.

    Every route gives the base model's vectors until it is trained. `add-route` and `drop-route` change the
    routes of a model later.

    Example: sentence-experts extend minilm --routes copd,cvd,cancer --out my-model
    """
    if not (experts or routes or domains or tasks):
        raise UsageError("name at least one route (`routes`), or give `domains` or `tasks`")
    check_source(model)
    if domains is not None:
        from sentence_experts.pairs.dataset import Pairs

        Pairs.of(domains)
    check_there(tasks)
    from sentence_experts.models.surgery.extend import extend as extend_base

    _show_routes(
        extend_base(
            model,
            experts,
            config,
            routes=routes,
            domains=domains,
            tasks=tasks,
            out=out,
            overwrite=overwrite,
        ),
        out,
    )


def add_route(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new route")],
    out: ModelOut,
    config: AddRouteConfig,
    tasks: Annotated[
        Path | None, typer.Option(help="Task file or tasks folder that has the route's instruction")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="With --seed-from base, or for a head on the base: the base that the model was made from, "
            "such as minilm"
        ),
    ] = None,
    adapter: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Folder of a LoRA that peft has trained on the same base, or a corpus beside which the "
            "route was taught",
        ),
    ] = None,
    profile: Annotated[str, typer.Option(help="With a corpus: profile that the route belongs to")] = DEFAULT,
    overwrite: Overwrite = False,
) -> None:
    """Add a route with an expert, adapter or head to a model; all other routes keep their vectors to the bit.

    Then train it alone: sentence-experts train OUT --only-expert NAME --routes NAME ...

    Example: sentence-experts add-route runs/experts/model skin --out grown

    A taught route: sentence-experts add-route minilm my-method --from library --out my-model
    """
    check_source(model, base)
    check_there(tasks, adapter)
    if adapter is not None and ((adapter / MANIFEST).is_file() or following(adapter).is_dir()):
        if config.model_fields_set or tasks or base:
            raise UsageError("a taught route is a head that needs no other settings")
        from sentence_experts.retrieval.taught_routes import add_taught_route

        _show_routes(
            add_taught_route(model, adapter, name, profile=profile, out=out, overwrite=overwrite), out
        )
        return
    if profile != DEFAULT:
        raise UsageError("`profile`: is for a taught route: give its corpus with --from, or leave it out")
    from sentence_experts.models.surgery.add_drop_routes import add_route as add

    made = add(model, name, config, tasks=tasks, base=base, adapter=adapter, out=out, overwrite=overwrite)
    _show_routes(made, out)


def drop_route(
    model: Model,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the route or expert")],
    out: ModelOut,
    overwrite: Overwrite = False,
) -> None:
    """Drop a route, what it owns and its token; all other routes keep their vectors to the bit.

    An expert goes with all routes that share it.

    Example: sentence-experts drop-route runs/experts/model skin --out without-skin
    """
    check_source(model)
    from sentence_experts.models.surgery.add_drop_routes import drop_route as drop

    _show_routes(drop(model, name, out=out, overwrite=overwrite), out)


def _show_routes(encoder: ExpertEncoder, out: Path) -> None:
    """Show a saved model's routes and how to use it."""
    from sentence_experts.models.routes.kinds import router_kind
    from sentence_experts.models.surgery.pooling_head import describe_modules

    total, active = encoder.parameter_counts()
    show(f"{out}: {total:,} parameters, {active:,} active per text")
    learned = router_kind(encoder.routed_model.config).is_learned
    if learned:
        show(f"  experts: {', '.join(encoder.experts)}; each block chooses its expert")
    adapters = {each.adapter: each.name for each in encoder.routes if each.kind == "adapter"}
    for one in encoder.routes:
        expert = encoder.experts[one.expert]
        shares = "" if expert == one.name else f", which shares the expert of {expert}"
        if one.kind != "expert":
            shares = f", on the {'base' if expert == 'base' else f'expert of {expert}'}"
        if one.kind == "head" and one.adapter is not None:
            shares = f", on the adapter of {adapters[one.adapter]}"
        number = next(each for each in (one.head, one.adapter, one.expert) if each is not None)
        route = one.name if learned else f"{one.kind} {number}: {one.name}{shares}"
        show(f"  {route}, texts begin with {one.text!r}")
    show(f"  vectors: {describe_modules(encoder)}")
    prompt = f', prompt_name="{encoder.routes[0].name}"' if encoder.routes else ""
    show("use it: import sentence_experts.register; from sentence_transformers import SentenceTransformer")
    show(f'        SentenceTransformer("{out}").encode(texts{prompt})')


def export(
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder to write the dense model to")],
    config: ExportConfig,
    int8: Annotated[
        Path | None,
        typer.Option(help="With --format onnx, a file of texts like those to encode: compute in 8 bits"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a dense model of the base's family that loads without this package.

    It has the base's tokenizer and number of parameters, and gives the route's vectors. With --format onnx a
    graph of all routes, or of one: `encode`, `search`, `serve` and others take its folder, without torch.

    Example: sentence-experts export runs/experts/model --route copd --out copd-encoder

    For ONNX Runtime: sentence-experts export runs/experts/model --format onnx --out graph
    """
    from sentence_experts.models.routes.known_routes import check_route
    from sentence_experts.models.sources import load_quietly

    check_source(model)
    check_there(int8)
    if config.route is not None:
        check_route(model, config.route, or_expert=True)
    load_quietly()
    from sentence_experts.models.export.export import export as export_model

    exported = export_model(model, out, config, overwrite, int8=int8)
    if config.format == "onnx":
        of_routes = f" of the routes {', '.join(exported.routes)}" if exported.routes else ""
        show(f"{out}: a graph{of_routes}, {exported.parameters:,} parameters")
        show(f"  largest difference from torch {exported.onnx_difference:.1e}; README.md has a loader")
        if exported.int8 is not None:
            count, mean, least = (exported.int8[name] for name in ("texts", "mean_cosine", "min_cosine"))
            cosine = f"{mean:.4f} on average, {least:.4f} at least"
            show(f"  in 8 bits: cosine to full precision on {count:,} other texts {cosine}")
        show(f"use it: sentence-experts encode|search|serve {out} ..., or sentence_experts.load('{out}')")
        return
    show(f"{out}: a {exported.model_type} of {exported.parameters:,} parameters")
    if exported.default_prompt is not None:
        show(f"  default prompt, in front of every text: {exported.default_prompt!r}")
    show("use it: from sentence_transformers import SentenceTransformer")
    show(f'        SentenceTransformer("{out}").encode(texts)')

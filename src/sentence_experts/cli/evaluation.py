"""`sentence-experts evaluate|audit|similarity`: measure models, and what leaked from training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from sentence_experts.cli.console import show, show_report
from sentence_experts.cli.options import Input, Model, Models, MtebNames, Overwrite, TasksFolder, one_of
from sentence_experts.errors import SentenceExpertsError, UsageError
from sentence_experts.evaluation.config import AuditConfig, EvaluateConfig, SimilarityConfig

if TYPE_CHECKING:
    from sentence_experts.evaluation.results import Evaluation

FIGURES, FIGURE = "similarity.json", "similarity.png"


def evaluate(
    config: EvaluateConfig,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for evaluation.json, scores.parquet and report.html (tasks: tasks.json, tasks.md)"
        ),
    ],
    models: Models = None,
    pairs: Annotated[Path | None, typer.Option(help="Pairs folder, or a table of pairs")] = None,
    tasks: TasksFolder = None,
    mteb: MtebNames = None,
    baseline: Annotated[
        list[str] | None, Field(description="Models to compare with; for pairs also tfidf")
    ] = None,
    name: Annotated[
        dict[str, str] | None, Field(description="LABEL=MODEL: what to call a model in the results")
    ] = None,
    seeds: Annotated[
        dict[str, list[str]] | None,
        Field(description="LABEL=MODEL: a run of the model LABEL; repeat it for each training seed"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Measure models on pairs of papers (--pairs), on MTEB (--mteb) or on your own tasks (--tasks).

    Pairs: how well models tell linked pairs of papers from unlinked ones. Each text is encoded with the route
    of its domain if the model has routes; the score of a pair is the cosine. The results cover all pairs, the
    mean of the domains and each domain, with 95% intervals over papers and seeds. Every model is compared
    with every other one. A model of experts with one route is given that route for every domain; a dense
    model whose prompts are none of the domains' encodes without one, which is told.

    Tasks: mteb's protocol, on its tasks from the hub or on the test sets of a tasks folder. The route of a
    text follows the type of its task; --route-map changes that. Finished measurements are not repeated.

    Example: sentence-experts evaluate runs/experts/model --pairs pairs --baseline tfidf --out results

    On tasks: sentence-experts evaluate runs/mote --mteb STSBenchmark,Banking77Classification --out runs/mteb

    With seeds: sentence-experts evaluate --seeds MoE=1/model --seeds MoE=2/model --pairs pairs --out results
    """
    from sentence_experts.evaluation.evaluate import evaluate as evaluate_models
    from sentence_experts.evaluation.models import named_models

    data = one_of(pairs=pairs, mteb=mteb, tasks=tasks)
    named, others = named_models(models or [], baseline or [], name, seeds)
    show_evaluation(evaluate_models(named, data, config, out, overwrite, baseline=others), out)


def show_evaluation(evaluation: Evaluation, out: Path) -> None:
    """Write the report of an evaluation, and show its tables and verdict.

    Raises:
        SentenceExpertsError: the data of a task could not be loaded.
    """
    show_report(evaluation, out)
    if evaluation.missing:
        raise SentenceExpertsError(
            f"{len(evaluation.missing)} tasks were not measured because their data could not be loaded: "
            f"{', '.join(evaluation.missing)}; the same command tries them again and keeps the others"
        )


def audit(
    config: AuditConfig,
    models: Models = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Pairs folder, or a .parquet, .csv, .tsv or .jsonl with the columns anchor, positive, label "
            "and split (and anchor_id, positive_id, domain if known)"
        ),
    ] = None,
    train: Annotated[Path | None, typer.Option(help="Training pairs, instead of --pairs")] = None,
    validation: Annotated[Path | None, typer.Option(help="Validation pairs, with --train")] = None,
    test: Annotated[Path | None, typer.Option(help="Test pairs, with --train")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for audit.json, leaked_pairs.parquet and report.html")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Show what training and test pairs share, and how metrics change without the leaked test pairs.

    The remaining test pairs are balanced as all test pairs are. A metric can also fall because the leaked
    pairs were easier: a model that was not trained on these pairs shows by how much.

    Example: sentence-experts audit runs/experts/model minilm --pairs my-pairs --out audit
    """
    from sentence_experts.evaluation.audit import audit as run_audit

    files = {"train": train, "validation": validation, "test": test}
    given = {split: path for split, path in files.items() if path is not None}
    if (pairs is None) == (not given):
        raise UsageError("give `pairs` (a folder or a table), or `train` and `test`")
    show_report(run_audit(models or (), pairs or given, config, out, overwrite), out)


def similarity(
    model: Model,
    texts: Input,
    out: Annotated[Path, typer.Option(help=f"Folder for {FIGURES} and {FIGURE}")],
    config: SimilarityConfig,
    against: Annotated[
        str | None,
        typer.Option(help="Another model with the same routes: test whether the cosines of MODEL are lower"),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Measure the cosine of one text's vectors under every pair of routes (MoTE, section 5.2).

    With --against, a one-sided Welch test for each pair of routes: is the mean of MODEL lower, are its routes
    more specialised? p-values are shown raw, and corrected for the number of pairs (Holm).

    Example: sentence-experts similarity mote --against ic --texts articles.txt --out similarity
    """
    from sentence_experts.errors import require
    from sentence_experts.models.routes.known_routes import check_route

    for source in filter(None, (model, against)):
        for route in config.routes or ():
            check_route(source, route)
    from sentence_experts.evaluation.similarity import similarity as measure

    require("matplotlib", "report")  # before anything is encoded
    measured = measure(model, texts, config, out, overwrite, against=against)
    from sentence_experts.report.write import write_report  # imports torch: after the checks

    show(measured)
    show(f"{out / FIGURES}, {write_report(measured, out, keep=True)}")

"""`sentence-experts evaluate MODEL...` on pairs or tasks, and `sentence-experts evaluate scores FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel
from typer.core import TyperGroup

from sentence_experts.cli.evaluate_tasks import assignments, check_kind, evaluate_tasks
from sentence_experts.cli.options import with_settings
from sentence_experts.console import results, say

if TYPE_CHECKING:
    from sentence_experts.evaluation.run import EvaluationPlan

DEFAULT = "models"


class ModelsUnlessScores(TyperGroup):
    """`evaluate scores ...` is a command of its own; any other first word is a model or an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Hand everything but `scores ...` to the models command, `--help` included."""
        return super().parse_args(ctx, args if args[:1] == ["scores"] else [DEFAULT, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Keep the models command's inner name out of usage lines."""
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == DEFAULT else name), command, rest


class EvaluationSettings(BaseModel):
    """The flags of `evaluate`."""

    pairs: Annotated[Path | None, typer.Option(help="Folder written by `sentence-experts pairs`.")] = None
    mteb: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[,NAME...]",
            help="Tasks or benchmarks, as mteb calls them, or groups (mteb-en-56, moee, mteb-medical...). "
            "Repeatable.",
        ),
    ] = []
    tasks: Annotated[
        Path | None, typer.Option(help="Folder written by `sentence-experts tasks`: its test sets.")
    ] = None
    out: Annotated[
        Path,
        typer.Option(
            help="Folder for evaluation.json, scores.parquet and report.html; of tasks, for tasks.json and "
            "tasks.md."
        ),
    ]
    only: Annotated[
        list[str],
        typer.Option(
            metavar="TASK|TYPE", help="Of --mteb or --tasks, only these tasks or types. Repeatable."
        ),
    ] = []
    baseline: Annotated[
        list[str], typer.Option(help="Of pairs: `tfidf`, or a model to compare with. Repeatable.")
    ] = []
    split: Annotated[str, typer.Option(help="Of pairs: train, validation or test.")] = "test"
    name: Annotated[
        list[str], typer.Option(metavar="LABEL=MODEL", help="What to call a model. Repeatable.")
    ] = []
    seeds: Annotated[
        list[str],
        typer.Option(
            metavar="LABEL=MODEL",
            help="A run of the model LABEL; give one for each seed, and they are measured as one model.",
        ),
    ] = []
    pooling: Annotated[
        list[str],
        typer.Option(
            metavar="MODEL=POOLING",
            help="How a model's (or label's) token vectors become one: mean, last or cls. Repeatable.",
        ),
    ] = []
    route_map: Annotated[
        list[str],
        typer.Option(
            metavar="[MODEL:]DOMAIN=ROUTE",
            help="The route of a domain (* for all), where a model names it differently. Of tasks: "
            "[MODEL:]TYPE[.query|.document]=ROUTE, TYPE as mteb calls it, or a task's name. Repeatable.",
        ),
    ] = []
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder for vectors, shared by evaluations; OUT/vectors when not given. Of tasks: folder "
            "for mteb's results; OUT/mteb."
        ),
    ] = None
    tfidf_fit: Annotated[
        str,
        typer.Option(
            help="Of pairs: fit TF-IDF on a domain's `train` texts, or on the `evaluated` texts themselves."
        ),
    ] = "train"
    bootstrap: Annotated[
        int, typer.Option(help="Bootstrap replicates over papers (of tasks: over datasets); 0: no intervals.")
    ] = 1000
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0
    linked_only: Annotated[
        bool,
        typer.Option(
            "--linked-only", help="Of pairs: measure linked ones alone, as on the preprint's test set (3.1)."
        ),
    ] = False
    threshold_min: Annotated[
        float | None,
        typer.Option(help="Lowest threshold to consider; 0.5 for pairs that are all linked (preprint, 3.4)."),
    ] = None
    batch_size: Annotated[int, typer.Option(help="Texts encoded at once.")] = 32
    max_length: Annotated[
        int | None,
        typer.Option(min=8, help="Cut texts to so many tokens, or to the model's own if less."),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, mps; chosen by itself when not given.")
    ] = None

    def plan(self, models: list[str], pairs: Path) -> EvaluationPlan:
        """The evaluation of `models` on pairs.

        Raises:
            UsageError: a flag that names a model or a domain is not of its form.
        """
        from sentence_experts.evaluation.run import EvaluationPlan

        return EvaluationPlan(
            models=models,
            pairs=pairs,
            out=self.out,
            baselines=self.baseline,
            split=self.split,
            cache=self.cache,
            names=dict(assignments(self.name, "--name LABEL=MODEL")),
            seeds=assignments(self.seeds, "--seeds LABEL=MODEL"),
            pooling=dict(assignments(self.pooling, "--pooling MODEL=POOLING")),
            route_map=dict(assignments(self.route_map, "--route-map [MODEL:]DOMAIN=ROUTE")),
            tfidf_fit=self.tfidf_fit,
            replicates=self.bootstrap,
            seed=self.seed,
            linked_only=self.linked_only,
            threshold_min=self.threshold_min,
            device=self.device,
            batch_size=self.batch_size,
            max_length=self.max_length,
        )


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb = typer.Typer(cls=ModelsUnlessScores, add_completion=False)
    verb.command(DEFAULT)(with_settings(EvaluationSettings)(evaluate_models))
    verb.command("scores")(evaluate_scores)
    app.add_typer(
        verb,
        name="evaluate",
        help="Measure models on labelled pairs, on MTEB or on tasks of yours, or scores from a file.",
    )


def evaluate_models(
    given: dict[str, Any],
    models: list[str] = typer.Argument(
        None, metavar="MODEL...", help="Model folders or hub ids.", show_default=False
    ),
) -> None:
    """Measure models on pairs of papers (--pairs), on MTEB (--mteb) or on your own tasks (--tasks).

    Pairs: how well models tell linked pairs of papers from unlinked ones. Each text is encoded with its
    domain's route where the model has routes; a pair's score is the cosine. Shown pooled over all pairs, as
    the mean of the domains, and by domain, with 95% bootstrap intervals over papers; then every model is
    compared with every other one. A model with one route, made for one domain, is given that route for every
    domain.

    Tasks: mteb's protocol, on its tasks from the hub or, without a network, on the test sets of a tasks
    folder. A text's route follows the type of its task; --route-map decides otherwise. What was measured
    before is not measured again.

    Example: sentence-experts evaluate runs/moe --pairs pairs --baseline tfidf --out runs/moe/evaluation

    On tasks: sentence-experts evaluate runs/mote --mteb STSBenchmark,Banking77Classification --out runs/mteb

    With seeds: sentence-experts evaluate --seeds MoE=runs/1 --seeds MoE=runs/2 --seeds MoE=runs/3 ...

    To measure scores that you already have: sentence-experts evaluate scores --help
    """
    settings = EvaluationSettings(**given)
    check_kind(settings)
    if settings.pairs is None:
        evaluate_tasks(settings, models or [])
    else:
        _evaluate_pairs(settings, models or [], settings.pairs)


def _evaluate_pairs(settings: EvaluationSettings, models: list[str], pairs: Path) -> None:
    from sentence_experts.evaluation.run import run_evaluation
    from sentence_experts.report.tables import (
        difference_table,
        evaluation_tables,
        router_table,
        seeds_note,
    )

    found = run_evaluation(settings.plan(models, pairs))
    for table in evaluation_tables(found):
        results.print(table)
    if (compared := difference_table(found)) is not None:
        results.print(compared)
    if (routed := router_table(found)) is not None:
        results.print(routed)
    if (note := seeds_note(found)) is not None:
        results.print(f"\n{note}", markup=False, highlight=False)
    results.print(f"report: {settings.out / 'report.html'}", markup=False, highlight=False)


def evaluate_scores(
    file: Path = typer.Argument(..., help="CSV with the columns prediction and label (0 or 1)."),
    threshold_min: float | None = typer.Option(
        None, help="Lowest threshold to consider; 0.5 for pairs that are all linked (preprint, 3.4)."
    ),
) -> None:
    """Measure scores from a CSV file and print the metrics as JSON.

    Keys: f1_max, precision, recall, threshold, ratio, roc_auc, mean_distance, accuracy; null where undefined.

    Example: sentence-experts evaluate scores predictions.csv
    """
    import json

    from sentence_experts.evaluation.metrics import pair_metrics
    from sentence_experts.evaluation.scores_file import read_scores

    scores, labels = read_scores(file)
    if threshold_min is None and labels.all():
        say("all labels are 1: the lowest score is a trivial best threshold; see --threshold-min 0.5")
    typer.echo(json.dumps(pair_metrics(scores, labels, threshold_min), indent=1))

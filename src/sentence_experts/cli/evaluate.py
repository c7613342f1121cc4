"""`sentence-experts evaluate MODEL...` on pairs or tasks, and `sentence-experts evaluate scores FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from sentence_experts.cli.console import note, results
from sentence_experts.cli.evaluate_settings import EvaluationSettings
from sentence_experts.cli.evaluate_tasks import check_kind, evaluate_tasks
from sentence_experts.cli.options import Verb, with_settings

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


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    verb = typer.Typer(cls=ModelsUnlessScores, add_completion=False)
    verb.command(DEFAULT, cls=Verb)(with_settings(EvaluationSettings)(evaluate_models))
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

    Example: sentence-experts evaluate runs/experts/model --pairs pairs --baseline tfidf --out results

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
    from sentence_experts.evaluation.results import PairEvaluation
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.report.tables import (
        difference_table,
        evaluation_tables,
        router_table,
        seeds_note,
    )

    found = settings.evaluate(models, Pairs.open(pairs))
    assert isinstance(found, PairEvaluation)
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
        note("all labels are 1: the lowest score is a trivial best threshold; see --threshold-min 0.5")
    typer.echo(json.dumps(pair_metrics(scores, labels, threshold_min), indent=1))

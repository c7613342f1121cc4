"""`sentence-experts evaluate MODEL...` and `sentence-experts evaluate scores FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from sentence_experts.console import results, say
from sentence_experts.errors import UsageError

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
    verb.command(DEFAULT)(evaluate_models)
    verb.command("scores")(evaluate_scores)
    app.add_typer(verb, name="evaluate", help="Measure models on labelled pairs, or scores from a file.")


def evaluate_models(
    models: list[str] = typer.Argument(
        None, metavar="MODEL...", help="Model folders or hub ids.", show_default=False
    ),
    pairs: Path = typer.Option(..., help="Folder written by `sentence-experts pairs`."),
    out: Path = typer.Option(..., help="Folder for evaluation.json, scores.parquet and report.html."),
    baseline: list[str] = typer.Option([], help="`tfidf`, or a model to compare with. Repeatable."),
    split: str = typer.Option("test", help="train, validation or test."),
    name: list[str] = typer.Option([], metavar="LABEL=MODEL", help="What to call a model. Repeatable."),
    route_map: list[str] = typer.Option(
        [],
        metavar="DOMAIN=ROUTE",
        help="The route of a domain, where the model names it differently. Repeatable.",
    ),
    tfidf_fit: str = typer.Option(
        "train", help="Fit TF-IDF on a domain's `train` texts, or on the `evaluated` texts themselves."
    ),
    bootstrap: int = typer.Option(1000, help="Bootstrap replicates over papers; 0: no intervals."),
    seed: int = typer.Option(0, help="Seed of the bootstrap."),
    threshold_min: float | None = typer.Option(
        None, help="Lowest threshold to consider; 0.5 for pairs that are all linked (preprint, 3.4)."
    ),
    batch_size: int = typer.Option(32, help="Texts encoded at once."),
    device: str | None = typer.Option(None, help="cpu, cuda, cuda:1, mps; chosen by itself when not given."),
) -> None:
    """Measure how well models tell linked pairs of papers from unlinked ones.

    Each text is encoded with its domain's route where the model has routes; a pair's score is the cosine.
    Shown pooled over all pairs, as the mean of the domains, and by domain, with 95% bootstrap intervals
    over papers.

    Example: sentence-experts evaluate runs/moe --pairs pairs --baseline tfidf --out runs/moe/evaluation

    To measure scores that you already have: sentence-experts evaluate scores --help
    """
    from sentence_experts.evaluation.run import EvaluationPlan, run_evaluation
    from sentence_experts.report.tables import difference_table, evaluation_tables

    plan = EvaluationPlan(
        models=models or [],
        pairs=pairs,
        out=out,
        baselines=baseline,
        split=split,
        names=_assignments(name, "--name LABEL=MODEL"),
        route_map=_assignments(route_map, "--route-map DOMAIN=ROUTE"),
        tfidf_fit=tfidf_fit,
        replicates=bootstrap,
        seed=seed,
        threshold_min=threshold_min,
        device=device,
        batch_size=batch_size,
    )
    found = run_evaluation(plan)
    for table in evaluation_tables(found):
        results.print(table)
    if (compared := difference_table(found)) is not None:
        results.print(compared)
    results.print(f"report: {out / 'report.html'}", markup=False, highlight=False)


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


def _assignments(values: list[str], usage: str) -> dict[str, str]:
    pairs = {}
    for value in values:
        left, equals, right = value.partition("=")
        if not (left and equals and right):
            raise UsageError(f"{value!r} is not of the form {usage}")
        pairs[left] = right
    return pairs

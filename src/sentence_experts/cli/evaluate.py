"""`sentence-experts evaluate MODEL...` on pairs or tasks, and `sentence-experts evaluate scores FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field
from typer.core import TyperGroup

from sentence_experts.cli.console import show, show_report
from sentence_experts.cli.options import Fields, Models, MtebNames, Overwrite, TasksFolder, add_verb, one_of
from sentence_experts.errors import SentenceExpertsError, UsageError
from sentence_experts.evaluation.config import EvaluateConfig

if TYPE_CHECKING:
    from sentence_experts.evaluation.results import Evaluation

DEFAULT = "models"


class ModelsUnlessScores(TyperGroup):
    """`evaluate scores ...` is a separate command; any other first word is a model or an option."""

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
    add_verb(verb, evaluate_models, DEFAULT)
    add_verb(verb, scores)
    app.add_typer(
        verb,
        name="evaluate",
        help="Measure models on labelled pairs, on MTEB or on your own tasks, or scores from a file.",
    )


Baseline = Annotated[list[str] | None, Field(description="Models to compare with; for pairs also tfidf")]
Names = Annotated[
    dict[str, str] | None, Field(description="LABEL=MODEL: what to call a model in the results")
]
Seeds = Annotated[
    dict[str, list[str]] | None,
    Field(description="LABEL=MODEL: a run of the model LABEL; repeat it for each training seed"),
]


def evaluate_models(
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
    baseline: Baseline = None,
    name: Names = None,
    seeds: Seeds = None,
    overwrite: Overwrite = False,
    qrels: Annotated[
        Path | None,
        typer.Option(help="File of queries and the papers judged for them, in TREC's or BEIR's layout"),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="With --qrels: the queries' texts. Default: queries.jsonl or .tsv beside it"),
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="With --qrels: the corpus that is searched")] = None,
    passages: Annotated[
        bool, typer.Option("--passages", help="With --qrels: search passages of full texts")
    ] = False,
) -> None:
    """Measure models on pairs of papers (--pairs), MTEB (--mteb), your tasks (--tasks) or search (--qrels).

    Pairs: how well models tell linked pairs of papers from unlinked ones. Each text is encoded with the route
    of its domain if the model has routes; the score of a pair is the cosine. The results cover all pairs, the
    mean of the domains and each domain, with 95% intervals over papers and seeds. Every model is compared
    with every other one. A model with one route is given that route for every domain.

    Tasks: mteb's protocol, on its tasks from the hub or on the test sets of a tasks folder. The route of a
    text follows the type of its task; --route-map changes that. Finished measurements are not repeated.

    Example: sentence-experts evaluate runs/experts/model --pairs pairs --baseline tfidf --out results

    On tasks: sentence-experts evaluate runs/mote --mteb STSBenchmark,Banking77Classification --out runs/mteb

    On search: sentence-experts evaluate runs/mote --qrels qrels.tsv --corpus corpus --out results

    With seeds: sentence-experts evaluate --seeds MoE=runs/1 --seeds MoE=runs/2 --pairs pairs --out results

    Scores that you already have: sentence-experts evaluate scores --help
    """
    from sentence_experts.evaluation.evaluate import evaluate
    from sentence_experts.evaluation.models import named_models

    data = one_of(pairs=pairs, mteb=mteb, tasks=tasks, qrels=qrels)
    named, others = named_models(models or [], baseline or [], name, seeds)
    if qrels is not None:
        _evaluate_search({**named, **others}, qrels, corpus, queries, passages, out, config)
        return
    show_evaluation(evaluate(named, data, config, out, overwrite, baseline=others), out)


def _evaluate_search(
    models: Any,
    qrels: Path,
    corpus: Path | None,
    queries: Path | None,
    passages: bool,
    out: Path,
    config: EvaluateConfig,
) -> None:
    from sentence_experts.evaluation.search_quality import evaluate_search
    from sentence_experts.retrieval.texts import PASSAGES

    if corpus is None:
        raise UsageError("`qrels` needs the corpus that is searched: give `corpus`")
    unit = PASSAGES if passages else None
    evaluation = evaluate_search(models, qrels, corpus, queries, out, config, unit=unit, seed=config.seed)
    from sentence_experts.report.write import report_of, write_report

    show_report(report_of(evaluation))
    show(f"report: {write_report(evaluation, out)}")


def scores(
    file: Annotated[
        Path,
        typer.Argument(
            help="A table (.csv, .tsv, .jsonl or .parquet) with the columns prediction and label (0 or 1)"
        ),
    ],
    config: Annotated[EvaluateConfig, Fields("threshold_min")],
) -> None:
    """Measure scores from a table and print the metrics as JSON.

    Keys: f1_max, precision, recall, threshold, ratio, roc_auc, mean_distance, accuracy; null where undefined.

    Example: sentence-experts evaluate scores predictions.csv
    """
    from sentence_experts.evaluation.scores import evaluate_scores

    typer.echo(json.dumps(dict(evaluate_scores(file, config).metrics), indent=1))


def show_evaluation(evaluation: Evaluation, out: Path) -> None:
    """Write the report of an evaluation, and show its tables and verdict.

    Raises:
        SentenceExpertsError: the data of a task could not be loaded.
    """
    from sentence_experts.report.write import report_of, write_report  # imports torch: after the checks

    show_report(report_of(evaluation))
    show(f"report: {write_report(evaluation, out)}")
    if evaluation.missing:
        raise SentenceExpertsError(
            f"{len(evaluation.missing)} tasks were not measured because their data could not be loaded: "
            f"{', '.join(evaluation.missing)}; the same command tries them again and keeps the others"
        )

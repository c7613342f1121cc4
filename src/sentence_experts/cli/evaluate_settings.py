"""The flags of `sentence-experts evaluate`, and the settings that they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel

from sentence_experts.cli.options import BATCH_SIZE_HELP
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_experts.evaluation.config import EvaluateConfig
    from sentence_experts.evaluation.results import Evaluation


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
    batch_size: Annotated[int | None, typer.Option(min=1, help=BATCH_SIZE_HELP)] = None
    max_length: Annotated[
        int | None,
        typer.Option(min=8, help="Cut texts to so many tokens, or to the model's own if less."),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, mps; chosen by itself when not given.")
    ] = None

    def config(self) -> EvaluateConfig:
        """The settings of the library.

        Raises:
            UsageError: a flag that names a model or a domain is not of its form, or a value is wrong.
        """
        from sentence_experts.evaluation.config import EvaluateConfig

        own = ("pairs", "mteb", "tasks", "out", "baseline", "name", "seeds")
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in own}
        values["pooling"] = dict(assignments(self.pooling, "--pooling MODEL=POOLING"))
        values["route_map"] = dict(assignments(self.route_map, "--route-map [MODEL:]DOMAIN=ROUTE"))
        return EvaluateConfig.of(None, **values)

    def evaluate(self, models: list[str], data: Any) -> Evaluation:
        """Measure the models."""
        from sentence_experts.evaluation.evaluate import evaluate
        from sentence_experts.evaluation.models import named_models
        from sentence_experts.report.write import write_report

        names = dict(assignments(self.name, "--name LABEL=MODEL"))
        seeds = assignments(self.seeds, "--seeds LABEL=MODEL")
        named, baseline = named_models(models, self.baseline, names, seeds)
        found = evaluate(named, data, self.config(), self.out, baseline=baseline)
        write_report(found, self.out)
        return found


def assignments(values: list[str], usage: str) -> list[tuple[str, str]]:
    """`LEFT=RIGHT` -> (left, right), each.

    Raises:
        UsageError: one is not of that form.
    """
    pairs = []
    for value in values:
        left, equals, right = value.partition("=")
        if not (left and equals and right):
            raise UsageError(f"{value!r} is not of the form {usage}")
        pairs.append((left, right))
    return pairs

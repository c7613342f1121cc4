"""`sentence-experts demo`: what the package does, in two parts, and what to open afterwards."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentence_experts.cli.console import results, show, show_table, show_verdict
from sentence_experts.demo.main_job import DemoConfig

if TYPE_CHECKING:
    from sentence_experts.demo.route_job import LabelledRows
    from sentence_experts.evaluation.results import PairEvaluation
    from sentence_experts.reproduce.material import Material
    from sentence_experts.training.fit import FitResult

PROGRAM = "sentence-experts"


def demo(
    config: DemoConfig,
    out: Annotated[Path, typer.Option(help="Folder for everything that the demo makes")] = Path("demo"),
) -> None:
    """Show what the package does, with every step as a call in Python.

    Part 1 is the main job, from articles to search, on real articles if the folder SENTENCE_EXPERTS_DATA (or
    ../shared/data) has them, else on a simulated corpus. Part 2 teaches kinds of similarity from labels, on
    the descriptions and tags of this machine's package lists (apt) or else on simulated texts: two routes,
    and a third one that is added without changing them. Takes minutes on two idle cores. Run again after an
    interruption, it continues where it stopped.

    Example: sentence-experts demo --out demo
    """
    from sentence_experts.demo.main_job import choose_material, run_main_job
    from sentence_experts.demo.route_job import LabelledRows, run_route_job

    began = time.monotonic()
    material = choose_material(out, config)
    show(
        f"The demo has two parts. The experts are trained for {config.steps} steps only, so that it takes "
        "minutes; for figures that mean more, see docs/studies.md."
    )
    _show_title(f"PART 1: from articles to search, on {material.name}")
    _show_main_job(material, out, run_main_job(material, out, config))
    texts = LabelledRows.find(config.seed)
    _show_title(f"PART 2: kinds of similarity, taught from labels, on {texts.name}")
    _show_routes(texts, *run_route_job(texts, out / "routes", config))
    _show_what_is_next(material, out, (time.monotonic() - began) / 60)


def _show_title(title: str) -> None:
    results.print(f"\n{title}", style="bold")


def _show_main_job(material: Material, out: Path, evaluation: PairEvaluation) -> None:
    """Show the figures of all models, a search by each of two experts, and the verdict."""
    from sentence_experts.demo.main_job import searches
    from sentence_experts.report.tables import number
    from sentence_experts.report.write import report_of

    rows = (
        (model.label, *(number(model.pooled.metrics[name]) for name in ("f1_max", "roc_auc")))
        for model in evaluation.models
    )
    show_table("test pairs of all domains", ("model", "F1max", "ROC-AUC"), rows)
    for route, found in searches(material, out):
        show(f"\nnearest titles, by the expert {route}:")
        show(found)
    show_verdict(report_of(evaluation).verdict.lines())


def _show_routes(texts: LabelledRows, two: FitResult, three: FitResult) -> None:
    """Show the figures of the routes, the neighbours of one text, and what the third one changed."""
    from sentence_experts.demo.route_job import describe_change, nearest_texts
    from sentence_experts.training.fit import HEADINGS, TITLE

    show_table(TITLE, HEADINGS, [*two.rows(), *three.rows()])
    show(f"\nOne text, and its nearest under each route: {texts.query}")
    for route, found in nearest_texts(three.model, texts):
        show(f"  {route}")
        for text in found:
            show(f"    {text}")
    show_verdict([two.summary, describe_change(texts, two, three)])


def _show_what_is_next(material: Material, out: Path, minutes: float) -> None:
    """Show what was made, and what to open and do."""
    from sentence_experts.demo.route_job import THREE

    routes = out / "routes"
    model = out / "runs" / "experts" / "model"
    _show_title(f"DONE in {minutes:.1f} minutes")
    show(f"made      {out / 'corpus'}: {material.name}")
    show(f"          {out / 'pairs'}: pairs of papers in it that are cited together")
    show(f"          {model}: a model with an expert per domain")
    show(f"          {routes / THREE}: a model of three routes, taught from labels")
    show(f"reports   {out / 'evaluation' / 'report.html'}")
    show("open      a search page with the routes side by side, at http://127.0.0.1:8000:")
    names = ",".join(material.queries)
    served = f"demo={model} --routes {names} --corpus {out / 'corpus'} --unit title"
    show(f"  {program()} serve {served}")
    show("          and one with the three kinds of similarity:")
    show(f"  {program()} serve routes={routes / THREE} --corpus {routes / 'corpus'} --unit title")
    show("next      your own articles: docs/getting-started.md")
    show("          your own labels: docs/kinds-of-similarity.md")


def program() -> str:
    """Return how this program is called from here."""
    called, known = Path(sys.argv[0]), shutil.which(PROGRAM)
    if called.name != PROGRAM or (known is not None and called.resolve() == Path(known).resolve()):
        return PROGRAM
    return str(called)

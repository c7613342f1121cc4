"""`sentence-experts reproduce|demo`: published experiments, and what the package does in two parts."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentence_experts.cli.console import results, show, show_table, show_verdict
from sentence_experts.demo.jobs import DemoConfig
from sentence_experts.reproduce.recipe import ReproduceConfig

if TYPE_CHECKING:
    from sentence_experts.reproduce.material import Material

PROGRAM = "sentence-experts"


def reproduce(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A shipped recipe, such as hallee2025/moe_all, or a file")
    ],
    config: ReproduceConfig,
    out: Annotated[
        Path, typer.Option(help="Folder for all recipes; recipes of one paper share pairs and models")
    ] = Path("reproduced"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the steps and do nothing")] = False,
) -> None:
    """Run a published experiment and set its figures beside the printed ones.

    Every step is a call of a public function: compile_pairs, extend, train, evaluate. Run again, it continues
    where it stopped. Ends with a table for each published one, and report.json, report.md and report.html.

    Example: sentence-experts reproduce hallee2025/moe_all --dry-run
    """
    from sentence_experts.report.content import for_terminal
    from sentence_experts.reproduce.run import plan_recipe, run_experiment

    experiment = plan_recipe(recipe, config, out, dry_run)
    if dry_run:
        for step in experiment.steps:
            show(str(step))
        return
    comparison = run_experiment(experiment)
    for table in comparison.tables:
        results.print(for_terminal(table))
    if comparison.figures:
        show(f"\n{comparison.legend}")
    for line in comparison.differences:
        show(f"- {line}")
    show(f"report: {experiment.report / 'report.html'}")


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
    from sentence_experts.corpus.simulate import simulate_corpus
    from sentence_experts.demo.jobs import THREE
    from sentence_experts.reproduce.material import Material, data_folder

    began = time.monotonic()
    material = Material.find(out / "simulated", None if config.simulated else data_folder())
    if material.simulated:
        simulate_corpus(material.sources[0], config.seed)
    show(
        f"The demo has two parts. The experts are trained for {config.steps} steps only, so that it takes "
        "minutes; for figures that mean more, see docs/studies.md."
    )
    experts, corpus, routes = out / "runs" / "experts" / "model", out / "corpus", out / "routes"
    _show_main_job(material, out, config)
    _show_route_job(routes, config)
    _show_title(f"DONE in {(time.monotonic() - began) / 60:.1f} minutes")
    show(f"""made      {corpus}: {material.name}
          {out / "pairs"}: pairs of papers in it that are cited together
          {experts}: a model with an expert per domain
          {routes / THREE}: a model of three routes, taught from labels
reports   {out / "evaluation" / "report.html"}
open      a search page with the routes side by side, at http://127.0.0.1:8000:
  {program()} serve demo={experts} --routes {",".join(material.queries)} --corpus {corpus} --unit title
          and one with the three kinds of similarity:
  {program()} serve routes={routes / THREE} --corpus {routes / "corpus"} --unit title
next      your own articles: docs/getting-started.md
          your own labels: docs/kinds-of-similarity.md""")


def _show_main_job(material: Material, out: Path, config: DemoConfig) -> None:
    import sentence_experts as se
    from sentence_experts.demo.jobs import run_main_job
    from sentence_experts.report.wording import number
    from sentence_experts.report.write import report_of

    _show_title(f"PART 1: from articles to search, on {material.name}")
    evaluation = run_main_job(material, out, config)
    rows = [
        (model.label, *(number(model.pooled.metrics[name]) for name in ("f1_max", "roc_auc")))
        for model in evaluation.models
    ]
    show_table("test pairs of all domains", ("model", "F1max", "ROC-AUC"), rows)
    model, corpus = se.load(out / "runs" / "experts" / "model"), out / "corpus"
    for route, query in material.queries.items():
        show(f"\nnearest titles, by the expert {route}:")
        show(se.search(model, corpus, query, route=route, unit="title", top_k=3))
    show_verdict(report_of(evaluation).verdict.lines())


def _show_route_job(routes: Path, config: DemoConfig) -> None:
    import sentence_experts as se
    from sentence_experts.demo.jobs import find_labelled_rows, run_route_job
    from sentence_experts.training.fit import HEADINGS, TITLE

    texts = find_labelled_rows(config.seed)
    _show_title(f"PART 2: kinds of similarity, taught from labels, on {texts.name}")
    two, three, change = run_route_job(texts, routes, config)
    show_table(TITLE, HEADINGS, [*two.rows(), *three.rows()])
    show(f"\nOne text, and its nearest under each route: {texts.query}")
    for route in texts.routes:
        found = se.search(three.model, routes / "corpus", texts.query, route=route, unit="title", top_k=4)
        show(f"  {route}")
        for title in [paper["title"] for paper in found.papers[0] if paper["title"] != texts.query][:3]:
            show(f"    {title}")
    show_verdict([two.summary, change])


def _show_title(title: str) -> None:
    results.print(f"\n{title}", style="bold")


def program() -> str:
    """Return the command that calls this program from here."""
    called, known = Path(sys.argv[0]), shutil.which(PROGRAM)
    if called.name != PROGRAM or (known is not None and called.resolve() == Path(known).resolve()):
        return PROGRAM
    return str(called)

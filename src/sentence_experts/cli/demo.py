"""`sentence-experts demo`: the whole main job, step by step."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from sentence_experts.cli.console import results, show, show_verdict
from sentence_experts.cli.options import add_verb
from sentence_experts.demo.config import DemoConfig


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, demo)


def demo(
    config: DemoConfig,
    out: Annotated[Path, typer.Option(help="Folder for everything that the demo makes")] = Path("demo"),
) -> None:
    """Run the main job from articles to search, showing every step as a call in Python.

    Works on real articles if the folder SENTENCE_EXPERTS_DATA (or ../shared/data) has them, else on a small
    simulated corpus. Ends with the evaluation of TF-IDF, all-MiniLM-L6-v2, a dense model fine-tuned with
    domain tokens and a model with experts; three searches; and an HTML report. About ten minutes on two
    cores. Run again after an interruption, it continues where it stopped.

    Example: sentence-experts demo --out demo
    """
    from sentence_experts.demo.job import choose_material, demo_steps, measured, searches
    from sentence_experts.report.tables import number
    from sentence_experts.report.verdict import of_pairs
    from sentence_experts.reproduce.steps import run_steps

    began = time.monotonic()
    material = choose_material(out, config)
    show(f"demo on {material.name}")
    run_steps(demo_steps(material, out, config), out / "steps.json")
    table = Table("model", "F1max", "ROC-AUC", title="test pairs of all domains")
    evaluation = measured(out)
    for model in evaluation.models:
        figures = (number(model.pooled.metrics[name]) for name in ("f1_max", "roc_auc"))
        table.add_row(model.label, *figures)
    results.print(table)
    for result in searches(material, out):
        show(f"\n{result}")
    minutes = (time.monotonic() - began) / 60
    show_verdict(of_pairs(evaluation).lines())
    show(f"\ndone in {minutes:.1f} minutes, on {material.name}")
    _show_what_is_next(out)


def _show_what_is_next(out: Path) -> None:
    """What was made, and what to do with it."""
    model, corpus = out / "runs" / "experts" / "model", out / "corpus"
    show(f"\nmade: a corpus ({corpus}), pairs ({out / 'pairs'}), a model with experts ({model})")
    show(f"open: {out / 'evaluation' / 'report.html'}")
    show(f"search page: sentence-experts serve demo={model} --corpus {corpus} --unit title")
    show("             then open http://127.0.0.1:8000, which shows a query under every route")
    show("next: the same with your own articles, docs/getting-started.md")
    show("      a route that is added later, the others bit-equal: docs/notebooks/add-a-lens.ipynb")

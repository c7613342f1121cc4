"""`sentence-experts audit`: what leaks from training pairs into test pairs, and how much that matters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.cli.console import show, show_report
from sentence_experts.cli.options import Models, Overwrite, add_verb
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.config import AuditConfig


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, audit)


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
    from sentence_experts.evaluation.audit.run import audit as run_audit

    files = {"train": train, "validation": validation, "test": test}
    given = {split: path for split, path in files.items() if path is not None}
    if (pairs is None) == (not given):
        raise UsageError("give `pairs` (a folder or a table), or `train` and `test`")
    audited = run_audit(models or (), pairs or given, config, out, overwrite)
    from sentence_experts.report.write import report_of, write_report  # imports torch: after the checks

    show_report(report_of(audited))
    if out is not None:
        show(f"report: {write_report(audited, out)}")

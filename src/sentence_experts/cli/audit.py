"""`sentence-experts audit`: what leaks from training pairs into test pairs, and what that is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentence_experts.cli.console import results
from sentence_experts.cli.options import Verb
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_experts.evaluation.audit.run import Audit


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("audit", cls=Verb)(audit)


def audit(
    pairs: Annotated[
        Path | None,
        typer.Argument(
            metavar="PAIRS",
            help="folder written by `pairs`, or a .parquet, .csv, .tsv or .jsonl with the columns anchor, "
            "positive, label and split (anchor_id, positive_id and domain if there are any)",
        ),
    ] = None,
    train: Annotated[Path | None, typer.Option(help="training pairs, instead of PAIRS")] = None,
    validation: Annotated[Path | None, typer.Option(help="validation pairs, with --train")] = None,
    test: Annotated[Path | None, typer.Option(help="test pairs, with --train")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for audit.json and leaked_pairs.parquet")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="folder or hub id of a model to measure. Repeatable.")
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            help="tfidf, or memory (what the training pairs say without any text). Repeatable. Default: both"
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="similarity from which two texts are nearly the same")
    ] = 0.7,
    bootstrap: Annotated[int, typer.Option(min=0, help="bootstrap replicates; 0: no intervals")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="seed of the bootstrap and of the balancing")] = 0,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ...; chosen by itself when not given")
    ] = None,
) -> None:
    """Say what training and test pairs share, and how figures change without the leaked test pairs.

    The test pairs that are left are balanced as all of them are. A figure can also fall because the leaked
    pairs were easier: a model that was not trained on these pairs shows by how much.

    Example: sentence-experts audit my-pairs --model runs/experts/model --model minilm --out audit
    """
    from sentence_experts.evaluation.audit.run import BASELINES
    from sentence_experts.evaluation.audit.run import audit as run_audit

    files = {"train": train, "validation": validation, "test": test}
    given = {split: path for split, path in files.items() if path is not None}
    if (pairs is None) == (not given):
        raise UsageError("give PAIRS (a folder or a table), or --train FILE and --test FILE")
    found = run_audit(
        pairs or given,
        model or (),
        out=out,
        threshold=threshold,
        baseline=baseline or list(BASELINES),
        bootstrap=bootstrap,
        seed=seed,
        device=device,
    )
    _show(found)
    if out is not None:
        results.print(f"written to {out}", markup=False, highlight=False)


def _show(found: Audit) -> None:
    from sentence_experts.report.audit_tables import audit_tables

    for table in audit_tables(found):
        results.print(table)
    results.print(f"\npairs both linked and not: {found.leaks.contradictions:,}")
    if found.citing is not None:
        seen, articles = found.citing
        results.print(
            f"articles behind test pairs that are behind training pairs too: {seen:,} of {articles:,}"
        )

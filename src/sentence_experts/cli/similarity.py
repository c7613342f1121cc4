"""`sentence-experts similarity`: how alike a text's vectors are under different routes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sentence_experts.cli.console import results
from sentence_experts.cli.options import BATCH_SIZE_HELP, Verb

if TYPE_CHECKING:
    from sentence_experts.evaluation.similarity import Cosines, Pair, Welch

FIGURES, FIGURE = "similarity.json", "similarity.png"


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("similarity", cls=Verb)(similarity)


def similarity(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a model with routes: folder or hub id")],
    texts: Annotated[
        Path, typer.Option(help=".txt (one a line), .csv, .tsv, .jsonl, each also .gz, or .parquet")
    ],
    out: Annotated[Path, typer.Option(help=f"folder for {FIGURES} and {FIGURE}")],
    against: Annotated[
        str | None,
        typer.Option(help="another model with the same routes: test whether MODEL's cosines are lower"),
    ] = None,
    routes: Annotated[
        str | None, typer.Option(help="routes to compare, with commas between; all when not given")
    ] = None,
    column: Annotated[str | None, typer.Option(help="column with the texts; not for .txt")] = None,
    sample: Annotated[int, typer.Option(min=2, help="at most so many texts, drawn at random")] = 128,
    seed: Annotated[int, typer.Option(help="of the draw")] = 0,
    batch_size: Annotated[int | None, typer.Option(min=1, help=BATCH_SIZE_HELP)] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ...; chosen by itself when not given")
    ] = None,
) -> None:
    """Measure the cosine of one text's vectors under every pair of routes (MoTE, section 5.2).

    With --against, a one-sided Welch test for each pair of routes: is MODEL's mean lower, are its routes more
    specialised? p-values stand as they are, and corrected for the number of pairs (Holm).

    Example: sentence-experts similarity mote --against ic --texts articles.txt --out similarity
    """
    from sentence_experts.errors import require
    from sentence_experts.evaluation.similarity import similarity as measure
    from sentence_experts.report.similarity_figure import write_similarity_figure

    require("matplotlib", "report")  # known before anything is encoded
    found = measure(
        model,
        texts,
        against=against,
        out=out,
        routes=[name.strip() for name in (routes or "").split(",") if name.strip()],
        column=column,
        sample=sample,
        seed=seed,
        batch_size=batch_size,
        device=device,
    )
    write_similarity_figure(out / FIGURE, found.cosines, found.tests)
    _show(found.cosines, found.tests, found.texts["used"])
    results.print(f"{out / FIGURES}, {out / FIGURE}", markup=False, highlight=False)


def _show(models: Mapping[str, Cosines], tests: Mapping[Pair, Welch], texts: int) -> None:
    table = Table(title=f"Cosine of one text under two routes, {texts:,} texts (mean ± sd)")
    table.add_column("routes", no_wrap=True)
    for label in models:
        table.add_column(label, justify="right")
    if tests:
        for heading in ("diff.", "p", "p Holm"):
            table.add_column(heading, justify="right")
    for pair in next(iter(models.values())):
        cells = [_short(each[pair].mean(), each[pair].std(ddof=1)) for each in models.values()]
        table.add_row(" – ".join(pair), *cells, *_tested(tests.get(pair)))
    results.print(table)


def _short(mean: float, sd: float) -> str:
    return f"{mean:.3f}±{sd:.3f}".replace("0.", ".")


def _tested(test: Any) -> list[str]:
    from sentence_experts.report.similarity_figure import p_text

    if test is None:
        return []
    p_values = [p_text(value) for value in (test.p_value, test.p_holm)]
    return [f"{test.difference:+.3f}".replace("0.", ".", 1), *p_values]

"""`sentence-experts similarity`: how alike a text's vectors are under different routes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sentence_experts.cli.console import results, show
from sentence_experts.cli.options import Model, add_verb
from sentence_experts.evaluation.config import SimilarityConfig

if TYPE_CHECKING:
    from sentence_experts.evaluation.similarity import Cosines, Pair, Welch

FIGURES, FIGURE = "similarity.json", "similarity.png"


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, similarity)


def similarity(
    model: Model,
    texts: Annotated[
        Path, typer.Option(help="Texts: .txt (one per line), .csv, .tsv, .jsonl, each also .gz, or .parquet")
    ],
    out: Annotated[Path, typer.Option(help=f"Folder for {FIGURES} and {FIGURE}")],
    config: SimilarityConfig,
    against: Annotated[
        str | None,
        typer.Option(help="Another model with the same routes: test whether the cosines of MODEL are lower"),
    ] = None,
) -> None:
    """Measure the cosine of one text's vectors under every pair of routes (MoTE, section 5.2).

    With --against, a one-sided Welch test for each pair of routes: is the mean of MODEL lower, are its routes
    more specialised? p-values are shown raw, and corrected for the number of pairs (Holm).

    Example: sentence-experts similarity mote --against ic --texts articles.txt --out similarity
    """
    from sentence_experts.errors import require
    from sentence_experts.evaluation.similarity import similarity as measure
    from sentence_experts.report.similarity_figure import write_similarity_figure

    require("matplotlib", "report")  # before anything is encoded
    found = measure(model, texts, config, out, against=against)
    write_similarity_figure(out / FIGURE, found.cosines, found.tests)
    _show(found.cosines, found.tests, found.texts["used"])
    show(f"{out / FIGURES}, {out / FIGURE}")


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

"""`sentence-experts similarity`: how alike a text's vectors are under different routes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sentence_experts.cli.console import note, results
from sentence_experts.cli.options import BATCH_SIZE_HELP
from sentence_experts.errors import UsageError

if TYPE_CHECKING:
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.evaluation.similarity import Cosines, Pair, Welch

FIGURES, FIGURE = "similarity.json", "similarity.png"


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("similarity")(similarity)


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
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.errors import require
    from sentence_experts.evaluation.similarity import (
        as_json,
        chosen_texts,
        welch_by_pair,
    )
    from sentence_experts.models.loading import load
    from sentence_experts.report.similarity_figure import write_similarity_figure
    from sentence_experts.storage import write_json
    from sentence_experts.tables import TextTable

    require("matplotlib", "report")  # known before anything is encoded
    if out.is_file():
        raise UsageError(f"{out}: --out is a folder; a file of that name is there")
    every = TextTable(texts, column).texts()
    used, aside = chosen_texts(every, sample, seed)
    _say_set_aside(texts, aside)
    encoders = [BatchEncoder(load(each, device=device), batch_size) for each in (model, against) if each]
    models = _cosines(encoders, used, routes)
    found = list(models.values())
    tests = welch_by_pair(*found) if len(found) == 2 else {}
    write_json(
        out / FIGURES,
        {
            "texts": {"file": texts.name, "read": len(every), "used": len(used), "seed": seed, **aside},
            "models": {label: each.settings() for label, each in zip(models, encoders, strict=True)},
            "pairs": as_json(models, tests),
        },
    )
    write_similarity_figure(out / FIGURE, models, tests)
    _show(models, tests, len(used))
    results.print(f"{out / FIGURES}, {out / FIGURE}", markup=False, highlight=False)


def _say_set_aside(texts: Path, aside: Mapping[str, int]) -> None:
    for reason, count in aside.items():
        if count:
            note(f"{texts}: {count:,} {reason} texts set aside")


def _cosines(encoders: list[BatchEncoder], texts: list[str], routes: str | None) -> dict[str, Cosines]:
    """Each model's cosines on the routes that all of them have."""
    from sentence_experts.evaluation.similarity import comparable_routes, inter_route_cosines

    wanted = [name.strip() for name in (routes or "").split(",") if name.strip()]
    compared = comparable_routes(encoders[0], wanted)
    for other in encoders[1:]:
        comparable_routes(other, compared)
    return {
        label: inter_route_cosines(encoder, texts, compared)
        for label, encoder in zip(_labels(encoders), encoders, strict=True)
    }


def _labels(encoders: list[BatchEncoder]) -> list[str]:
    names = [encoder.name for encoder in encoders]
    return names if len(set(names)) == len(names) else [names[0], f"{names[1]} (--against)"]


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

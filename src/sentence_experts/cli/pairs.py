"""`sentence-experts pairs`: a corpus -> linked pairs in train, validation and test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sentence_experts.cli.options import parse_settings, with_settings
from sentence_experts.pairs.settings import PairSettings


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("pairs")(with_settings(PairSettings)(pairs))


def pairs(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="folder written by `corpus import`")],
    out: Annotated[Path, typer.Option(help="folder to write the dataset to")],
    given: dict[str, Any],
    domains: Annotated[
        Path | None, typer.Option(help="YAML rules that sort papers into domains; without, one domain 'all'")
    ] = None,
) -> None:
    """Compile pairs of linked papers from a corpus: train, validation and test sets.

    Both papers of a pair are of one domain. Validation and test are balanced with negatives of the same
    domain that no relation links.

    Example: sentence-experts pairs my-corpus --domains domains.yaml --relation coupling
    --negatives-min-cited 0 --out my-pairs
    """
    settings = parse_settings(PairSettings, given)

    from sentence_experts.cli.tables import show_pairs
    from sentence_experts.corpus.tables import CorpusFolder
    from sentence_experts.pairs.compile import compile_pairs

    show_pairs(compile_pairs(CorpusFolder.open(corpus), out, settings, domains))

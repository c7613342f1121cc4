"""`sentence-experts pairs`: a corpus -> linked pairs in train, validation and test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentence_experts.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("pairs")(compile_command)


def compile_command(
    corpus: Annotated[Path, typer.Argument(help="a folder written by `corpus import`")],
    out: Annotated[Path, typer.Option(help="folder to write the dataset to")],
    relation: Annotated[
        str,
        typer.Option(
            help="what links two papers: co-citation (cited together), coupling (they share "
            "references), citation (one cites the other)"
        ),
    ] = "co-citation",
    unit: Annotated[
        str, typer.Option(help="the text of a paper: abstract, title or title+abstract")
    ] = "abstract",
    domains: Annotated[
        Path | None, typer.Option(help="YAML rules that sort papers into domains; without, one domain 'all'")
    ] = None,
    rare: Annotated[
        int, typer.Option(help="coupling: a shared reference counts if at most this many papers cite it")
    ] = 10,
    min_count: Annotated[int, typer.Option(help="leave out pairs linked fewer times than this")] = 1,
    split: Annotated[
        str,
        typer.Option(
            help="paper: no paper in two sets; random: by pair, as published; year: the newest "
            "year is the test set"
        ),
    ] = "paper",
    fractions: Annotated[
        str | None,
        typer.Option(
            help="shares of train,validation,test: of papers for --split paper (default 0.6,0.2,0.2), "
            "of pairs otherwise (0.98,0.01,0.01)"
        ),
    ] = None,
    negatives_min_cited: Annotated[
        int, typer.Option(help="both papers of a negative pair are cited at least this often in the corpus")
    ] = 15,
    frequency: Annotated[
        str,
        typer.Option(
            help="how often-linked pairs weigh more in training: sampling (when "
            "--max-train-per-domain draws), duplication (a pair linked 5 times stands 5 times), none"
        ),
    ] = "sampling",
    max_train_per_domain: Annotated[
        int | None, typer.Option(help="draw at most this many training pairs")
    ] = None,
    max_eval_per_domain: Annotated[
        int | None, typer.Option(help="draw at most this many positive pairs for validation, and for test")
    ] = None,
    seed: Annotated[int, typer.Option(help="same seed, same bytes")] = 0,
) -> None:
    """Compile pairs of linked papers from a corpus: train, validation and test sets.

    Validation and test are balanced with negatives of the same domain that no relation links.

    Example: sentence-experts pairs my-corpus --relation coupling --domains domains.yaml
    --negatives-min-cited 0 --out my-pairs
    """
    from pydantic import ValidationError

    from sentence_experts.cli.tables import show_pairs
    from sentence_experts.corpus.tables import CorpusFolder
    from sentence_experts.pairs.compile import compile_pairs
    from sentence_experts.pairs.settings import PairSettings

    try:
        settings = PairSettings.model_validate(
            {
                "relation": relation,
                "unit": unit,
                "rare": rare,
                "min_count": min_count,
                "split": split,
                "fractions": _fractions(fractions),
                "negatives_min_cited": negatives_min_cited,
                "frequency": frequency,
                "max_train_per_domain": max_train_per_domain,
                "max_eval_per_domain": max_eval_per_domain,
                "seed": seed,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        raise UsageError(f"{option} {first['input']!r}: {first['msg']}") from error
    show_pairs(compile_pairs(CorpusFolder.open(corpus), out, settings, domains))


def _fractions(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        parts = tuple(float(part) for part in text.split(","))
    except ValueError:
        parts = ()
    if len(parts) != 3 or min(parts) < 0 or parts[0] == 0 or abs(sum(parts) - 1) > 1e-6:
        raise UsageError(f"--fractions {text!r}: give three shares that add up to 1, such as 0.6,0.2,0.2")
    return parts

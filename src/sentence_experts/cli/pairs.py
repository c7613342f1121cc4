"""`sentence-experts pairs`: a corpus -> linked pairs in train, validation and test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sentence_experts.cli.console import results, show
from sentence_experts.cli.options import CORPUS, Overwrite, add_verb
from sentence_experts.pairs.config import PairsConfig

if TYPE_CHECKING:
    from sentence_experts.pairs.dataset import Pairs


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    add_verb(app, pairs)


def pairs(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help=CORPUS)],
    out: Annotated[Path, typer.Option(help="Folder to write the pairs to")],
    config: PairsConfig,
    overwrite: Overwrite = False,
) -> None:
    """Compile pairs of linked papers from a corpus: train, validation and test sets.

    Both papers of a pair belong to one domain. Validation and test are balanced with negative pairs of the
    same domain that no relation links, or that the same article mentions far from each other.

    Example: sentence-experts pairs my-corpus --domains domains.yaml --relation coupling
    --out my-pairs
    """
    from sentence_experts.pairs.compile import compile_pairs

    _show(compile_pairs(corpus, config, out, overwrite))


def _show(pairs: Pairs) -> None:
    """The number of pairs per domain, and what readers of results on them should know."""
    from sentence_experts.pairs.levels import LEVELS
    from sentence_experts.pairs.splits import SPLITS

    manifest = pairs.manifest
    settings = manifest["settings"]
    table = Table(title=f"{settings['relation']} pairs of {settings['unit']}s, split by {settings['split']}")
    table.add_column("domain")
    for heading in ("train", "validation (+/-)", "test (+/-)", "papers in test"):
        table.add_column(heading, justify="right")
    for domain, counts in manifest["domains"].items():
        sets = [f"{counts[name]['positives']:,} / {counts[name]['negatives']:,}" for name in SPLITS[1:]]
        table.add_row(domain, f"{counts['train']['positives']:,}", *sets, f"{counts['test']['papers']:,}")
    results.print(table)
    if papers := manifest["papers"]:
        counts = ", ".join(f"{domain} {count:,}" for domain, count in papers["per_domain"].items())
        several, none = papers["in_several"], papers["in_none"]
        show(f"papers per domain: {counts}; matched by several domains {several:,}, by none {none:,}")
    if retracted := manifest["retracted"]:
        treatment = "kept" if settings["keep_retracted"] else "left out of all pairs"
        show(f"papers marked as retracted, {treatment}: {retracted:,}")
    linked = ", ".join(f"{count:,} at least {least}x" for least, count in manifest["link_counts"].items())
    show(f"linked pairs, both papers of one domain: {linked}")
    if levels := manifest["closest_levels"]:
        totals = {level: sum(counts[level] for counts in levels.values()) for level in LEVELS}
        closest = ", ".join(f"{level} {count:,}" for level, count in totals.items() if count)
        show(f"closest place that mentions both papers of a pair: {closest}")
    left_out = sum((manifest["positives_without_negative"] or {}).values())
    if left_out and settings["negatives"] == "same-article":
        show(f"left out, since no paper of the same article is far from them: {left_out:,} linked pairs")
    if manifest["left_out_by_max_references"]:
        left_out = manifest["left_out_by_max_references"]
        show(
            f"left out, with more than {settings['max_references']:,} references: {left_out['papers']:,} "
            f"papers and their {left_out['citations']:,} citations that could have made pairs"
        )
    if manifest["pairs_between_splits_left_out"]:
        behind = "papers or citing articles" if settings["split"] == "article" else "papers"
        left_out = manifest["pairs_between_splits_left_out"]
        show(f"left out, since their {behind} are in two sets: {left_out:,}")
    seen, papers = manifest["test_papers_seen_in_training"], manifest["test_papers"]
    show(f"test papers seen in training: {seen:,} of {papers:,}")
    seen, articles = manifest["test_articles_seen_in_training"], manifest["test_articles"]
    if articles is not None:
        show(f"articles behind test pairs that are behind training pairs too: {seen:,} of {articles:,}")
    show(f"written to {pairs.path}")

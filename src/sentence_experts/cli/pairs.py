"""`sentence-experts pairs compile|import`: linked pairs in train, validation and test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sentence_experts.cli.console import show, show_table
from sentence_experts.cli.options import Corpus, Overwrite, group
from sentence_experts.pairs.config import ImportPairsConfig, PairsConfig

if TYPE_CHECKING:
    from sentence_experts.pairs.dataset import Pairs

Out = Annotated[Path, typer.Option(help="Folder to write the pairs to")]


def compile_(
    corpus: Corpus,
    out: Out,
    config: PairsConfig,
    overwrite: Overwrite = False,
) -> None:
    """Compile pairs of linked papers from a corpus: train, validation and test sets.

    Both papers of a pair belong to one domain. Validation and test are balanced with negative pairs of the
    same domain that no relation links, or that the same article mentions far from each other.

    Example: sentence-experts pairs compile my-corpus --domains domains.yaml --relation coupling
    --out my-pairs
    """
    from sentence_experts.pairs.compile import compile_pairs

    _show(compile_pairs(corpus, config, out, overwrite))


def import_(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="Table of pairs: .csv, .tsv, .jsonl, .parquet, also .gz; or a hub dataset, OWNER/NAME",
        ),
    ],
    out: Out,
    config: ImportPairsConfig,
    overwrite: Overwrite = False,
) -> None:
    """Make training, validation and test pairs of a table of your own, for train, evaluate and audit.

    Each row has two texts (anchor, positive) and, if known, label (1 linked, 0 not), domain, split, negative,
    anchor_id and positive_id. Without a column split, no text is in two sets; without labels, validation and
    test get negatives.

    Example: sentence-experts pairs import questions.csv --anchor question --positive answer --out my-pairs
    """
    from sentence_experts.pairs.importing import import_pairs

    imported = import_pairs(table, out, config, overwrite)
    _show_sets(imported, f"pairs of {table.name}")
    show(f"written to {imported.path}")


def _show_sets(pairs: Pairs, title: str) -> None:
    """Show the number of pairs per domain."""
    from sentence_experts.pairs.splits import SPLITS

    rows = []
    for domain, counts in pairs.manifest["domains"].items():
        sets = [f"{counts[name]['positives']:,} / {counts[name]['negatives']:,}" for name in SPLITS[1:]]
        rows.append((domain, f"{counts['train']['positives']:,}", *sets, f"{counts['test']['papers']:,}"))
    show_table(title, ("domain", "train", "validation (+/-)", "test (+/-)", "papers in test"), rows)


def _show(pairs: Pairs) -> None:
    """Show the number of pairs per domain, and what readers of results on them should know."""
    from sentence_experts.pairs.card import describe_trained
    from sentence_experts.pairs.config import AUTO_LEVEL, LEVELS

    manifest = pairs.manifest
    settings = manifest["settings"]
    _show_sets(pairs, f"{settings['relation']} pairs of {settings['unit']}s, split by {settings['split']}")
    if papers := manifest["papers"]:
        counts = ", ".join(f"{domain} {count:,}" for domain, count in papers["per_domain"].items())
        several, none = papers["in_several"], papers["in_none"]
        show(f"papers per domain: {counts}; matched by several domains {several:,}, by none {none:,}")
    if retracted := manifest["retracted"]:
        treatment = "kept" if settings["keep_retracted"] else "left out of all pairs"
        show(f"papers marked as retracted, {treatment}: {retracted:,}")
    if notices := manifest.get("notices"):
        treatment = "kept" if settings["keep_notices"] else "left out of all pairs"
        show(f"corrections, editorials and other notices, {treatment}: {notices:,}")
    linked = ", ".join(f"{count:,} at least {least}x" for least, count in manifest["link_counts"].items())
    show(f"linked pairs, both papers of one domain: {linked}")
    if levels := manifest["closest_levels"]:
        totals = {level: sum(counts[level] for counts in levels.values()) for level in LEVELS}
        closest = ", ".join(f"{level} {count:,}" for level, count in totals.items() if count)
        show(f"closest place that mentions both papers of a pair: {closest}")
    if settings["train_within"] == AUTO_LEVEL and (trained := manifest["trained_within"]):
        show(f"training pairs are {describe_trained(trained)}; --train-within chooses")
    if manifest["left_out_by_max_references"]:
        left_out = manifest["left_out_by_max_references"]
        show(
            f"left out, with more than {settings['max_references']:,} references: {left_out['papers']:,} "
            f"papers and their {left_out['citations']:,} citations that could have made pairs"
        )
    if manifest["pairs_between_splits_left_out"]:
        behind = "papers or citing articles" if settings["split"] == "article" else "papers"
        left_out = manifest["pairs_between_splits_left_out"]
        show(f"left out, since their {behind} are in two sets: {left_out:,} pairs")
    seen, papers = manifest["test_papers_seen_in_training"], manifest["test_papers"]
    show(f"test papers seen in training: {seen:,} of {papers:,}")
    seen, articles = manifest["test_articles_seen_in_training"], manifest["test_articles"]
    if articles is not None:
        show(f"articles that link test pairs and also training pairs: {seen:,} of {articles:,}")
    show(f"written to {pairs.path}")


pairs = group(
    "Make training, validation and test pairs, of a corpus or of a table of your own.\n\n"
    "Example: sentence-experts pairs compile corpus --domains domains.yaml --out pairs",
    compile_,
    import_,
)

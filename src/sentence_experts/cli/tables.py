"""Tables that the commands end with."""

from __future__ import annotations

from rich.table import Table

from sentence_experts.console import results
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.pairs.splits import SPLITS


def show_pairs(pairs: PairsFolder) -> None:
    """Print how many pairs each domain got, and what a reader of results on them should know."""
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
    linked = ", ".join(f"{count:,} at least {least}x" for least, count in manifest["link_counts"].items())
    results.print(f"linked pairs in the corpus: {linked}")
    if manifest["pairs_between_splits_left_out"]:
        results.print(
            f"left out, since their papers are in two sets: {manifest['pairs_between_splits_left_out']:,}"
        )
    seen, papers = manifest["test_papers_seen_in_training"], manifest["test_papers"]
    results.print(f"test papers seen in training: {seen:,} of {papers:,}")
    results.print(f"written to {pairs.path}")

"""The dataset card of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from sentence_experts.pairs.config import LEVELS
from sentence_experts.pairs.splits import SPLITS

MEANING = {
    "co-citation": "both papers are cited by the same third paper",
    "coupling": "both papers cite the same work (bibliographic coupling, not co-citation)",
    "citation": "one paper cites the other",
}
UNLINKED = "are unlinked by co-citation, coupling and citation"
NEGATIVES = {
    "matched": f"{UNLINKED}, and are made of the works of the linked pairs, each as often as in those",
    "hard": f"{UNLINKED}, and are made of the works of the linked pairs, each as often as in those, and "
    "joined so that their texts are similar by TF-IDF",
    "random": UNLINKED,
    "cited": f"{UNLINKED}; both works are cited at least {{negatives_min_cited}} times",
}
MAX_NAMED = 3  # sets in a message
# Added for co-citation, where articles cite both papers of a pair.
ARTICLE_CAUTION = (
    " {seen} of {articles} articles that cite both papers of a test pair do so for a training pair too."
)
CAUTION = {
    "paper": "No paper occurs in two splits.",
    "article": "No paper occurs in two splits, and no article cites both papers of pairs in two splits.",
    "random": (
        "Pairs were split at random, as published: {seen} of {papers} test papers also occur in training "
        "pairs, so figures on this test set are optimistic."
    ),
    "year": (
        "The test pairs have a paper of the newest year; {seen} of {papers} test papers also occur in "
        "training pairs."
    ),
}


def dataset_card(manifest: dict[str, Any], columns: Mapping[str, Sequence[str]]) -> str:
    """README.md with metadata for `datasets.load_dataset(folder)`: the columns of each configuration."""
    files = [{"split": name, "path": f"{name}.parquet"} for name in SPLITS]
    metadata = {
        "configs": [
            {"config_name": name, "default": name == "pairs", "data_files": files, "columns": list(names)}
            for name, names in columns.items()
        ],
        "task_categories": ["sentence-similarity"],
        "tags": ["sentence-transformers", *(["co-citation"] if "corpus" in manifest else [])],
    }
    description = _description(manifest) if "corpus" in manifest else "# Pairs of texts\n"
    if "sample_of" in manifest:
        sample = manifest["sample_of"]
        description += (
            f"\nA random {sample['share']:.0%} of each domain's training pairs, sampled with seed "
            f"{sample['seed']} from the dataset {sample['pairs'][:12]}; validation and test are complete.\n"
        )
    return f"""---
{yaml.safe_dump(metadata, sort_keys=False)}---
{description}
{_counts(manifest["domains"])}

`load_dataset(folder)` gives anchor, positive and label, ready for the sentence-transformers trainer;
`load_dataset(folder, "full")` adds domain, count, the papers' ids and, of pairs by proximity, the closest
level (`within`). `known_links.parquet` has every linked
pair of the training papers, sampled or not, so that none is taken for a negative.

All settings, hashes and counts are in `manifest.json`.
"""


def _description(manifest: dict[str, Any]) -> str:
    """Describe the pairs of a corpus for readers of results on them."""
    settings = manifest["settings"]
    caution = CAUTION[settings["split"]].format(
        seen=manifest["test_papers_seen_in_training"], papers=manifest["test_papers"]
    )
    if manifest["test_articles_seen_in_training"]:
        caution += ARTICLE_CAUTION.format(
            seen=manifest["test_articles_seen_in_training"], articles=manifest["test_articles"]
        )
    within = settings.get("within", "article")
    near = "" if within == "article" else f", within one {within} of it"
    negatives = NEGATIVES[settings.get("negatives", "cited")].format(**settings)
    if short := manifest.get("not_matched"):
        caution = f"{describe_shortfall(short)}. {caution}"
    if hard := describe_near(manifest.get("near_negatives")):
        caution = f"{hard[0].upper()}{hard[1:]}. {caution}"
    return f"""# Pairs of scientific texts by {settings["relation"]}

A pair is linked (label 1) when {MEANING[settings["relation"]]}{near}.
Texts: {settings["unit"]}. Both works of a pair are of one domain.
Negatives (label 0, in validation and test only) {negatives}. {caution}
{_levels(manifest)}
The texts keep the licences of their articles: {describe_licences(manifest["corpus"]["licences"])}.
"""


def _levels(manifest: dict[str, Any]) -> str:
    """The number of linked pairs by the closest level at which an article mentions both."""
    counts = manifest.get("closest_levels")
    if not counts:
        return ""
    rows = [(level, *(counts[name][level] for name in SPLITS)) for level in LEVELS]
    table = _table(("closest mention in one", *SPLITS), [row for row in rows if any(row[1:])])
    trained = manifest.get("trained_within")
    after = f"\nTraining pairs were sampled from: {describe_trained(trained)}.\n" if trained else ""
    return f"\n{table}\n{after}"


def describe_trained(trained: Mapping[str, Mapping[str, Any]]) -> str:
    """How near to each other an article mentions the two papers of training pairs, by domain."""
    return ", ".join(
        f"{domain} {counts['pairs']:,} of one {counts['level'] or 'article'}"
        + (f" (of {counts['of']:,})" if counts["level"] else "")
        for domain, counts in trained.items()
    )


def _counts(domains: dict[str, Any]) -> str:
    rows = []
    for domain, counts in domains.items():
        both = [f"{counts[name]['positives']:,} + {counts[name]['negatives']:,}" for name in SPLITS[1:]]
        rows.append((domain, counts["train"]["positives"], *both, counts["test"]["papers"]))
    table = _table(("domain", *SPLITS, "papers in test"), rows)
    return f"{table}\n\nPairs are given as positives + negatives."


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table of Markdown."""
    cells = [[f"{each:,}" if isinstance(each, int) else each for each in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (header, *cells)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def describe_licences(licences: dict[str, int] | None) -> str:
    """The licences of articles, the most frequent first."""
    if not licences:
        return "see the corpus"
    return ", ".join(
        f"{name} ({count:,})" for name, count in sorted(licences.items(), key=lambda item: -item[1])
    )


def describe_near(counts: Mapping[str, Mapping[str, Mapping[str, int]]] | None) -> str | None:
    """A sentence about how many negatives (`DrawnNegatives.near`) are near; None if they are not hard."""
    if not counts:
        return None
    of_sets = [each for by_split in counts.values() for each in by_split.values()]
    near, every = (sum(each[name] for each in of_sets) for name in ("near", "all"))
    rest = "; the other works had no unlinked text near them and were matched at random"
    return (
        f"hard negatives: {near:,} of {every:,} join texts that are near each other by TF-IDF"
        f"{rest if near < every else ''}"
    )


def describe_shortfall(shortfall: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str | None:
    """How many negatives are not fully matched and what was taken instead; None if all are."""
    if not shortfall:
        return None
    sets = [
        (f"{domain} ({split})", counts)
        for domain, by_split in shortfall.items()
        for split, counts in by_split.items()
    ]
    named = ", ".join(
        f"{name} {sum(counts.values()) - counts['matched']:,} of {sum(counts.values()):,}"
        for name, counts in sets[:MAX_NAMED]
    )
    more = f" and {len(sets) - MAX_NAMED} more" if len(sets) > MAX_NAMED else ""
    instead = {
        "nearest": "keep one work and get an unlinked one that is nearly as frequent",
        "random": "are two other unlinked works of the domain",
        "left_out": "linked pairs were left out",
    }
    totals = {kind: sum(counts[kind] for _, counts in sets) for kind in instead}
    taken = "; ".join(f"{totals[kind]:,} {text}" for kind, text in instead.items() if totals[kind])
    return (
        f"too few unlinked pairs can be made of the works of the linked pairs: {named}{more}. Instead, "
        f"{taken}. More articles, fewer domains or a lower `max_eval_per_domain` leave more to choose from"
    )

"""The dataset card of pairs, and the sentences about them in it and in `pairs compile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from sentence_experts.pairs.config import LEVELS, SPLITS

MEANING = {
    "co-citation": "both papers are cited by the same third paper",
    "coupling": "both papers cite the same work (bibliographic coupling, not co-citation)",
    "citation": "one paper cites the other",
}
NEGATIVES = {
    "matched": ", and are made of the works of the linked pairs, each as often as in those",
    "random": "",
    "cited": "; both works are cited at least {negatives_min_cited} times",
}
CAUTION = {
    "paper": "No paper occurs in two splits.",
    "article": "No paper occurs in two splits, and no article cites both papers of pairs in two splits.",
    "random": "Pairs were split at random, as published, so figures on this test set are optimistic.",
    "year": "The test pairs have a paper of the newest year.",
}
MAX_NAMED = 3  # maximum number of sets that a message names


def dataset_card(manifest: dict[str, Any], columns: Mapping[str, Sequence[str]]) -> str:
    """Write README.md with metadata for `datasets.load_dataset(folder)`: columns of each configuration."""
    files = [{"split": name, "path": f"{name}.parquet"} for name in SPLITS]
    metadata = {
        "configs": [
            {"config_name": name, "default": name == "pairs", "data_files": files, "columns": list(names)}
            for name, names in columns.items()
        ],
        "task_categories": ["sentence-similarity"],
        "tags": ["sentence-transformers", *(["co-citation"] if "corpus" in manifest else [])],
    }
    rows = [
        (domain, counts["train"]["positives"],
         *(f"{counts[name]['positives']:,} + {counts[name]['negatives']:,}" for name in SPLITS[1:]),
         counts["test"]["papers"])
        for domain, counts in manifest["domains"].items()
    ]  # fmt: skip
    return f"""---
{yaml.safe_dump(metadata, sort_keys=False)}---
{_describe_pairs(manifest) if "corpus" in manifest else "# Pairs of texts"}

{_format_table(("domain", *SPLITS, "papers in test"), rows)}

Pairs are given as positives + negatives.

`load_dataset(folder)` gives anchor, positive and label, ready for the sentence-transformers trainer;
`load_dataset(folder, "full")` adds domain, count, the papers' ids and, of pairs by proximity, the closest
level (`within`). `known_links.parquet` has every linked pair of the training papers, sampled or not, so that
none is taken for a negative.

All settings, hashes and counts are in `manifest.json`.
"""


def _describe_pairs(manifest: dict[str, Any]) -> str:
    """Describe the pairs of a corpus for readers of results on them."""
    settings = manifest["settings"]
    near = "" if settings["within"] == "article" else f", within one {settings['within']} of it"
    cautions = [CAUTION[settings["split"]]]
    if short := describe_shortfall(manifest["not_matched"]):
        cautions.insert(0, f"{short}.")
    for name, what in (("papers", "test papers are"), ("articles", "articles behind them are")):
        if seen := manifest[f"test_{name}_seen_in_training"]:
            cautions.append(f"{seen:,} of {manifest[f'test_{name}']:,} {what} also in training pairs.")
    levels = ""
    if counts := manifest["closest_levels"]:
        rows = [(level, *(counts[name][level] for name in SPLITS)) for level in LEVELS]
        table = _format_table(("closest mention in one", *SPLITS), [row for row in rows if any(row[1:])])
        trained = describe_trained(manifest["trained_within"])
        levels = f"\n\n{table}\n\nTraining pairs were sampled from: {trained}."
    return f"""# Pairs of scientific texts by {settings["relation"]}

A pair is linked (label 1) when {MEANING[settings["relation"]]}{near}.
Texts: {settings["unit"]}. Both works of a pair are of one domain.
Negatives (label 0, in validation and test only) are unlinked by co-citation, coupling and
citation{NEGATIVES[settings["negatives"]].format(**settings)}. {" ".join(cautions)}{levels}

The texts keep the licences of their articles: {describe_licences(manifest["corpus"]["licences"])}."""


def describe_trained(trained: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe how near to each other an article mentions the papers of training pairs, by domain."""
    return ", ".join(
        f"{domain} {counts['pairs']:,} of one {counts['level'] or 'article'}"
        + (f" (of {counts['of']:,})" if counts["pairs"] < counts["of"] else "")
        for domain, counts in trained.items()
    )


def _format_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Format a table in Markdown."""
    cells = [[f"{each:,}" if isinstance(each, int) else each for each in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (header, *cells)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def describe_licences(licences: dict[str, int] | None) -> str:
    """List the licences of articles, the most frequent first."""
    ordered = sorted((licences or {}).items(), key=lambda item: -item[1])
    return ", ".join(f"{name} ({count:,})" for name, count in ordered) or "see the corpus"


def describe_shortfall(
    shortfall: Mapping[str, Mapping[str, Mapping[str, int]]],
    remedy: str = "More articles, fewer domains or a lower `max_eval_per_domain` leave more to choose from",
) -> str | None:
    """Describe how many negatives are not fully matched, and their substitutes; None if all are matched."""
    sets = {
        f"{domain} ({split})": counts
        for domain, by_split in shortfall.items()
        for split, counts in by_split.items()
    }
    if not sets:
        return None
    named = [
        f"{name} {sum(counts.values()) - counts['matched']:,} of {sum(counts.values()):,}"
        for name, counts in sets.items()
    ]
    more = f" and {len(sets) - MAX_NAMED} more" if len(sets) > MAX_NAMED else ""
    instead = {
        "nearest": "keep one work and get an unlinked one that is nearly as frequent",
        "random": "are two other unlinked works of the domain",
        "left_out": "linked pairs were left out",
    }
    totals = {kind: sum(counts[kind] for counts in sets.values()) for kind in instead}
    taken = "; ".join(f"{totals[kind]:,} {text}" for kind, text in instead.items() if totals[kind])
    return (
        "too few unlinked pairs can be made of the works of the linked pairs: "
        f"{', '.join(named[:MAX_NAMED])}{more}. Instead, {taken}. {remedy}"
    )

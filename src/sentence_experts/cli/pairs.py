"""`sentence-experts pairs compile|import` and `tasks`: texts that belong together in three sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentence_experts.cli.console import show, show_table
from sentence_experts.cli.options import Corpus, Overwrite, group
from sentence_experts.pairs.config import AUTO_LEVEL, LEVELS, SPLITS, ImportPairsConfig, PairsConfig
from sentence_experts.tasks.config import TasksConfig

if TYPE_CHECKING:
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.tasks.dataset import Tasks

MAX_NAMED = 5  # classes in a line
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
    rows = []
    for domain, counts in pairs.manifest["domains"].items():
        sets = [f"{counts[name]['positives']:,} / {counts[name]['negatives']:,}" for name in SPLITS[1:]]
        rows.append((domain, f"{counts['train']['positives']:,}", *sets, f"{counts['test']['papers']:,}"))
    show_table(title, ("domain", "train", "validation (+/-)", "test (+/-)", "papers in test"), rows)


def _show(pairs: Pairs) -> None:
    """Show the number of pairs per domain, and what readers of results on them should know."""
    from sentence_experts.pairs.card import describe_trained

    manifest = pairs.manifest
    settings = manifest["settings"]
    _show_sets(pairs, f"{settings['relation']} pairs of {settings['unit']}s, split by {settings['split']}")
    if papers := manifest["papers"]:
        counts = ", ".join(f"{domain} {count:,}" for domain, count in papers["per_domain"].items())
        several, none = papers["in_several"], papers["in_none"]
        show(f"papers per domain: {counts}; matched by several domains {several:,}, by none {none:,}")
    for name, what in (("retracted", "papers marked as retracted"),
                       ("notices", "corrections, editorials and other notices")):  # fmt: skip
        treatment = "kept" if settings[f"keep_{name}"] else "left out of all pairs"
        if manifest[name]:
            show(f"{what}, {treatment}: {manifest[name]:,}")
    linked = ", ".join(f"{count:,} at least {least}x" for least, count in manifest["link_counts"].items())
    show(f"linked pairs, both papers of one domain: {linked}")
    if levels := manifest["closest_levels"]:
        totals = {level: sum(counts[level] for counts in levels.values()) for level in LEVELS}
        closest = ", ".join(f"{level} {count:,}" for level, count in totals.items() if count)
        show(f"closest place that mentions both papers of a pair: {closest}")
    if settings["train_within"] == AUTO_LEVEL and (trained := manifest["trained_within"]):
        show(f"training pairs are {describe_trained(trained)}; --train-within chooses")
    if left_out := manifest["left_out_by_max_references"]:
        show(
            f"left out, with more than {settings['max_references']:,} references: {left_out['papers']:,} "
            f"papers and their {left_out['citations']:,} citations that could have made pairs"
        )
    if left_out := manifest["pairs_between_splits_left_out"]:
        behind = "papers or citing articles" if settings["split"] == "article" else "papers"
        show(f"left out, since their {behind} are in two sets: {left_out:,} pairs")
    show(f"test papers seen in training: {manifest['test_papers_seen_in_training']:,} of "
         f"{manifest['test_papers']:,}")  # fmt: skip
    if (articles := manifest["test_articles"]) is not None:
        seen = manifest["test_articles_seen_in_training"]
        show(f"articles that link test pairs and also training pairs: {seen:,} of {articles:,}")
    show(f"written to {pairs.path}")


pairs = group(
    "Make training, validation and test pairs, of a corpus or of a table of your own.\n\n"
    "Example: sentence-experts pairs compile corpus --domains domains.yaml --out pairs",
    compile_,
    import_,
)


def tasks(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="YAML file with the tasks, their instructions and their datasets"
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the datasets to")],
    config: TasksConfig,
    overwrite: Overwrite = False,
) -> None:
    """Compile the datasets of tasks: retrieval, classification, clustering, and their test sets.

    Rows come from files, corpora and hub datasets. Classification and clustering are trained on pairs of
    texts of one label. No text of a validation or test set is in the training set of any dataset.

    Example: sentence-experts tasks tasks.yaml --out my-tasks
    """
    from sentence_experts.tasks.compile import compile_tasks

    _show_tasks(compile_tasks(file, config, out, overwrite))


def _show_tasks(folder: Tasks) -> None:
    """Show the number of pairs and texts per dataset, what is left out and why, and problems with classes."""
    rows = []
    for task, datasets in folder.manifest["datasets"].items():
        for name, entry in datasets.items():
            counts = folder.counts[task][name]
            sets = [f"{counts[split]:,}" if split in counts else "-" for split in SPLITS]
            left_out = f"{folder.count_left_out(task, name):,}"
            rows.append((f"{task}/{name}", *sets, str(entry.get("classes", "-")), left_out))
    headings = ("task/dataset", "train", "valid", "test", "classes", "left out")
    show_table("pairs of each dataset", headings, rows)
    for task, datasets in folder.manifest["datasets"].items():
        for name, entry in datasets.items():
            for note in _describe_problems(entry):
                show(f"{task}/{name}: {note}")
    for route, instruction in folder.task_file.instructions().items():
        expert = folder.task_file.experts()[route]
        shared = "" if expert == route else f", with the expert of {expert}"
        show(f"route {route}: texts begin with {instruction!r}{shared}")
    show(f"written to {folder.path}")


def _describe_problems(entry: dict[str, Any]) -> list[str]:
    """Return one line per reason for which rows were left out, and per problem with classes."""
    notes = [f"set aside {count:,}: {why}" for why, count in entry["set_aside"].items()]
    notes += [f"removed {count:,}: {why.replace('_', ' ')}" for why, count in entry["removed"].items()]
    for split, labels in entry.get("classes_of_one_text", {}).items():
        notes.append(f"{split}: one text and so no pair in {_name_classes(labels)}")
    if missing := entry.get("classes_not_in_train"):
        notes.append(f"measured but without a training text: {_name_classes(missing)}")
    return notes


def _name_classes(labels: list[str]) -> str:
    more = f" and {len(labels) - MAX_NAMED:,} more" if len(labels) > MAX_NAMED else ""
    return f"{len(labels):,} class{'es' * (len(labels) > 1)}: {', '.join(labels[:MAX_NAMED])}{more}"

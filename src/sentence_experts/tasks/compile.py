"""Compile the datasets of a task file: read, check, split, keep apart, sample, pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentence_experts.config import with_settings
from sentence_experts.errors import InputError
from sentence_experts.progress import progress
from sentence_experts.storage import check_apart
from sentence_experts.tasks.config import TasksConfig
from sentence_experts.tasks.dataset import (
    PAIRS_SCHEMA,
    TEXTS,
    TEXTS_SCHEMA,
    Tasks,
)
from sentence_experts.tasks.rows import Reading, Row, SetAside, read, text_id, text_key, usable_rows
from sentence_experts.tasks.split import (
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    assign,
    keys_of,
    linked,
    same_label_pairs,
    sample,
    without,
)
from sentence_experts.tasks.task_file import Task, TaskFile


@dataclass
class Dataset:
    """One dataset while it is compiled: its rows, the records set aside, its entry in the manifest."""

    task: Task
    name: str
    rows: list[Row]
    bad: list[SetAside]
    described: dict[str, Any]
    removed: Counter[str] = field(default_factory=Counter)

    @property
    def where(self) -> str:
        """Its place in the task file."""
        return f"tasks.{self.task.name}.datasets.{self.name}"


@with_settings(TasksConfig)
def compile_tasks(
    source: Path | str | Mapping[str, Any],
    config: TasksConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Tasks:
    """Read the datasets of a task file, split them and make pairs.

    No text of a validation or test set, of any dataset, is in a training set; nor one of a test set in a
    validation set.

    Args:
        source: a task file (YAML), or its content as a mapping; there a dataset may also be a table (pandas,
            polars, Arrow, `datasets.Dataset`).
        config: the settings; `settings` override its fields, by name.
        out: the folder to write to; without, the datasets stay in memory.
        overwrite: start over, replacing other task datasets in `out`.

    Raises:
        InputError: a task file or source cannot be used, a class has no text, a split has no rows.
        UsageError: `out` holds something else.

    Example:
        >>> import pandas as pd
        >>> texts = [f"I feel {mood}, {n}" for mood in ("fine", "sad") for n in range(20)]
        >>> frame = pd.DataFrame({"text": texts, "label": ["fine"] * 20 + ["sad"] * 20})
        >>> compile_tasks({"mood": {"kind": "classification", "datasets": {"small": frame}}})
        Tasks(mood (train: 33, validation: 4, test: 2); in memory)
    """
    config = TasksConfig.of(config, **settings)
    if isinstance(source, Mapping):
        task_file, folder = TaskFile.from_mapping(source), Path()
    else:
        task_file, folder = TaskFile.read(source), Path(source).parent
    if out is None:
        return _compiled(task_file, folder, config)
    check_apart(out, overwrite, source if isinstance(source, str | Path) else None)
    with Tasks.output(out, overwrite) as place:
        tasks = _compiled(task_file, folder, config)
        sources = {
            f"{task}/{name}": entry["source"]
            for task, datasets in tasks.manifest["datasets"].items()
            for name, entry in datasets.items()
        }
        made_from = {"tasks": tasks.manifest["hierarchy"], "sources": sources}
        if place.begin({"config": config.model_dump(mode="json"), **made_from}) != "finished":
            tasks.save_to(place)
    return Tasks.open(out)


def _compiled(task_file: TaskFile, folder: Path, config: TasksConfig) -> Tasks:
    """The datasets in memory; relative paths of the task file are relative to `folder`."""
    datasets = []
    with progress("datasets", sum(len(task.datasets) for task in task_file.tasks.values())) as advance:
        for task in task_file.tasks.values():
            for name in task.datasets:
                datasets.append(_prepared(task, name, folder, config))
                advance()
    _keep_apart(datasets)
    tables: dict[str, pa.Table] = {}
    entries: dict[str, dict[str, Any]] = {task: {} for task in task_file.tasks}
    for dataset in datasets:
        own, entry = _tables(dataset, config)
        tables |= {f"{dataset.task.name}/{dataset.name}/{name}": table for name, table in own.items()}
        entries[dataset.task.name][dataset.name] = entry
    manifest = {
        "settings": config.model_dump(mode="json") | {"fractions": list(config.shares)},
        "hierarchy": task_file.stored(),
        "counts": {
            task: {name: entry.pop("pairs") for name, entry in own.items()} for task, own in entries.items()
        },
        "datasets": entries,
    }
    set_aside = [
        {"task": each.task.name, "dataset": each.name, **asdict(bad)} for each in datasets for bad in each.bad
    ]
    return Tasks.in_memory(tables, manifest, set_aside)


# ---- reading and splitting one dataset -----------------------------------------------------------


def _prepared(task: Task, name: str, folder: Path, settings: TasksConfig) -> Dataset:
    """The dataset, each of its rows in a split."""
    source = task.datasets[name]
    where = f"tasks.{task.name}.datasets.{name}"
    try:
        reading = read(source, task.of, folder, settings.keep_retracted)
        rows, bad = usable_rows(reading.records, source, task.of)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    _check_classes(where, rows, bad)
    if not rows:
        first = f", the first since: {bad[0].where}: {bad[0]}" if bad else ""
        raise InputError(f"{where}: no row can be used; {len(bad)} were set aside{first}")
    dataset = Dataset(task, name, rows, bad, reading.described)
    _drop_duplicates(dataset)
    _split(dataset, reading, settings)
    return dataset


def _check_classes(where: str, rows: list[Row], bad: list[SetAside]) -> None:
    known = {row.label for row in rows} | {None}
    if empty := [one for one in bad if one.label not in known]:
        times = sum(one.label == empty[0].label for one in empty)
        raise InputError(
            f"{where}: class {empty[0].label!r} has no text: none of its {times} rows has one (the first is "
            f"{empty[0].where}); give them texts or take them out"
        )


def _drop_duplicates(dataset: Dataset) -> None:
    """Remove repeated pairs; labelled and scored rows stay as they were published."""
    if not dataset.task.of.trainable or dataset.task.of.labelled:
        return
    first = {(*row.texts(), row.negative, row.split): row for row in reversed(dataset.rows)}
    distinct = list(reversed(first.values()))
    dataset.removed["duplicate"] = len(dataset.rows) - len(distinct)
    dataset.rows = distinct


def _split(dataset: Dataset, reading: Reading, settings: TasksConfig) -> None:
    """Split the rows if the source has no splits, or take validation out of its training split."""
    rows, fractions = dataset.rows, settings.shares
    if not dataset.task.of.trainable:
        tests = [row for row in rows if row.split in (None, TEST)]
        dataset.rows = assign(tests, (0.0, 0.0, 1.0), settings.seed)
    elif not reading.splits:
        dataset.rows = assign(rows, fractions, settings.seed)
        shares = dict(zip(SPLITS, fractions, strict=True))
        splits = {row.split for row in dataset.rows}
        empty = [split for split in SPLITS if shares[split] and split not in splits]
        if empty:
            raise InputError(
                f"{dataset.where}: the {empty[0]} split got none of the {len(rows)} rows; give it a "
                "larger share with `fractions`, take another `seed`, or add rows"
            )
    elif TRAIN in reading.splits and VALIDATION not in reading.splits:
        share = fractions[1] / (fractions[0] + fractions[1])
        trained = assign([row for row in rows if row.split == TRAIN], (1 - share, share, 0.0), settings.seed)
        dataset.rows = trained + [row for row in rows if row.split != TRAIN]


def _keep_apart(datasets: list[Dataset]) -> None:
    """Remove test texts of any dataset from training and validation, and validation texts from training."""
    tested, validated = (
        set().union(*(keys_of(dataset.rows, split) for dataset in datasets)) for split in (TEST, VALIDATION)
    )
    for dataset in datasets:
        for split, seen in ((VALIDATION, tested), (TRAIN, tested | validated)):
            dataset.rows, removed, negatives = without(dataset.rows, split, seen)
            dataset.removed[f"{split}_seen_in_evaluation"] += removed
            dataset.removed["negatives_seen_in_evaluation"] += negatives
        if dataset.removed[f"{TRAIN}_seen_in_evaluation"] and not keys_of(dataset.rows, TRAIN):
            raise InputError(f"{dataset.where}: every training row holds a text that is evaluated on")


# ---- tables of one dataset -----------------------------------------------------------------------


def _tables(dataset: Dataset, settings: TasksConfig) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """File name -> table, and the dataset's entry in the manifest."""
    kind = dataset.task.of
    maxima = dict(zip(SPLITS, (settings.max_train, settings.max_eval, settings.max_eval), strict=True))
    splits = {
        split: sample([row for row in dataset.rows if row.split == split], maximum, settings.seed)
        for split, maximum in maxima.items()
    }
    entry: dict[str, Any] = {
        "source": dataset.described,
        "set_aside": dict(sorted(Counter(map(str, dataset.bad)).items())),
        "removed": {why: count for why, count in sorted(dataset.removed.items()) if count},
    }
    tables, pairs = {}, splits
    if kind.labelled:
        tables[TEXTS] = _texts_table(splits)
        made = {
            split: same_label_pairs(rows, settings.pairs_per_text, settings.seed)
            for split, rows in splits.items()
        }
        pairs = {split: own for split, (own, _) in made.items()}
        entry |= _classes(splits, {split: single for split, (_, single) in made.items() if single})
        if splits[TRAIN] and not pairs[TRAIN]:
            raise InputError(f"{dataset.where}: no class has two training texts, so there are no pairs")
    tables |= {f"{split}.parquet": _pairs_table(own) for split, own in pairs.items() if own}
    entry["pairs"] = {split: len(own) for split, own in pairs.items() if own}
    return tables, entry


def _classes(splits: dict[str, list[Row]], single_texts: dict[str, list[str]]) -> dict[str, Any]:
    """Counts of the classes, labels without a pair, and labels that training lacks."""
    labels = {split: {str(row.label) for row in rows} for split, rows in splits.items()}
    evaluated = labels[VALIDATION] | labels[TEST]
    return {
        "texts": {split: len(rows) for split, rows in splits.items() if rows},
        "classes": len(set().union(*labels.values())),
        "classes_of_one_text": single_texts,
        "classes_not_in_train": sorted(evaluated - labels[TRAIN]) if labels[TRAIN] else [],
    }


def _texts_table(splits: dict[str, list[Row]]) -> pa.Table:
    rows = [
        {"id": text_id(row.anchor), "text": row.anchor, "label": row.label, "split": split}
        for split, own in splits.items()
        for row in own
    ]
    return pa.Table.from_pylist(rows, TEXTS_SCHEMA)


def _pairs_table(rows: list[Row]) -> pa.Table:
    """`PAIRS_SCHEMA`; the group is the label, or for pairs that share a text their smallest positive."""
    together = linked([[text_key(text) for text in row.texts()] for row in rows])
    groups: dict[int, str] = {}
    for row, component in zip(rows, together, strict=True):
        positive = text_id(str(row.positive))
        groups[component] = min(positive, groups.get(component, positive))
    return pa.Table.from_pylist(
        [
            {
                "anchor_id": text_id(row.anchor),
                "positive_id": text_id(str(row.positive)),
                "anchor": row.anchor,
                "positive": row.positive,
                "group": groups[component] if row.label is None else row.label,
                "negative": row.negative,
                "score": row.score,
            }
            for row, component in zip(rows, together, strict=True)
        ],
        PAIRS_SCHEMA,
    )

"""Compile the datasets of a task file: read, check, split, keep apart, sample, pair."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentence_experts.config import with_settings
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.labels import warn_of_case
from sentence_experts.progress import progress
from sentence_experts.storage import check_apart
from sentence_experts.tasks.config import TasksConfig
from sentence_experts.tasks.dataset import PAIRS_SCHEMA, TEXTS, TEXTS_SCHEMA, Tasks
from sentence_experts.tasks.rows import Row, UnusableError, read, text_id, warn_of_scores
from sentence_experts.tasks.split import (
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    assign,
    keys_of,
    same_label_pairs,
    sample,
    without,
)
from sentence_experts.tasks.task_file import Task, TaskFile

logger = logging.getLogger(__name__)


@dataclass
class Dataset:
    """One dataset while it is compiled: its rows, the records set aside, its description."""

    task: Task
    name: str
    rows: list[Row] = field(default_factory=list)
    bad: list[tuple[str, UnusableError]] = field(default_factory=list)
    described: dict[str, Any] = field(default_factory=dict)
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
    validation set. Negatives of rows to validate or test on may be texts of training, but not candidates to
    re-rank.

    Args:
        source: a task file (YAML), or its content as a mapping; there a dataset may also be a table (pandas,
            polars, Arrow, `datasets.Dataset`).
        config: the settings; `settings` override its fields, by name.
        out: the folder to write to; without, the datasets stay in memory.
        overwrite: start over, replacing other task datasets in `out`.

    Raises:
        InputError: a task file or source cannot be used, or a split has no rows.
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
        return _compile(task_file, folder, config)
    check_apart(out, overwrite, source if isinstance(source, str | Path) else None)
    with Tasks.output(out, overwrite) as place:
        tasks = _compile(task_file, folder, config)
        sources = {
            f"{task}/{name}": entry["source"]
            for task, datasets in tasks.manifest["datasets"].items()
            for name, entry in datasets.items()
        }
        made_from = {"tasks": tasks.manifest["hierarchy"], "sources": sources}
        if place.begin({"config": config.model_dump(mode="json"), **made_from}) != "finished":
            tasks.save_to(place)
        finished = Tasks.open(out)
        # The record of an output holds mappings without their order.
        if _list_names(finished.task_file) != _list_names(tasks.task_file):
            raise UsageError(
                f"{out}: this folder of tasks was made with another order of tasks or routes; give another "
                "`out`, or `overwrite` to start over"
            )
    return finished


def _list_names(task_file: TaskFile) -> list[tuple[str, list[str], list[str]]]:
    """Return each task's name, routes and datasets, in their order."""
    return [(name, [*task.instructions], [*task.datasets]) for name, task in task_file.tasks.items()]


def _compile(task_file: TaskFile, folder: Path, config: TasksConfig) -> Tasks:
    """Return the datasets in memory; relative paths of the task file are relative to `folder`."""
    datasets = [Dataset(task, name) for task in task_file.tasks.values() for name in task.datasets]
    with progress("datasets", len(datasets)) as advance:
        for dataset in datasets:
            _read(dataset, folder, config)
            advance()
    _keep_apart(datasets)
    for dataset in datasets:
        _drop_repeats(dataset)
    tables: dict[str, pa.Table] = {}
    counts: dict[str, dict[str, Any]] = {task: {} for task in task_file.tasks}
    entries: dict[str, dict[str, Any]] = {task: {} for task in task_file.tasks}
    for dataset in datasets:
        task, name = dataset.task.name, dataset.name
        own, pairs, entries[task][name] = _make_tables(dataset, config)
        tables |= {f"{task}/{name}/{file}": table for file, table in own.items()}
        counts[task][name] = {split: len(rows) for split, rows in pairs.items() if rows}
    manifest = {
        "settings": config.model_dump(mode="json") | {"fractions": list(config.shares)},
        "hierarchy": task_file.stored(),
        "counts": counts,
        "datasets": entries,
    }
    columns = ("task", "dataset", "where", "field", "reason")
    set_aside = [
        dict(zip(columns, (each.task.name, each.name, where, bad.field, bad.reason), strict=True))
        for each in datasets
        for where, bad in each.bad
    ]
    return Tasks.in_memory(tables, manifest, set_aside)


# ---- reading and splitting one dataset -----------------------------------------------------------


def _read(dataset: Dataset, folder: Path, config: TasksConfig) -> None:
    """Read the rows, and give each a split."""
    kind, source = dataset.task.of, dataset.task.datasets[dataset.name]
    try:
        splits, dataset.rows, dataset.bad, dataset.described = read(source, kind, folder)
    except InputError as error:
        raise InputError(f"{dataset.where}: {error}") from error
    if not dataset.rows:
        first = f", the first since: {dataset.bad[0][0]}: {dataset.bad[0][1]}" if dataset.bad else ""
        raise InputError(f"{dataset.where}: no row can be used; {len(dataset.bad)} were set aside{first}")
    if dataset.bad:
        place, reason = dataset.bad[0]
        logger.warning(
            f"{dataset.where}: {len(dataset.bad):,} rows are set aside, the first: {place}: {reason}"
        )
    groups = {row.texts(): row.group for row in dataset.rows}  # several negatives are several rows
    without = sum(group is None for group in groups.values())
    if source.group and not splits and 2 * without > len(groups):
        logger.warning(
            f"{dataset.where}: the column {source.group} (`group`) is empty for {without:,} of "
            f"{len(groups):,} texts, which may be in any split"
        )
    _split(dataset, splits, config)


def _split(dataset: Dataset, splits: tuple[str, ...], config: TasksConfig) -> None:
    """Split the rows if the source has no splits, or take validation out of its training split."""
    rows, shares = dataset.rows, config.shares
    if not dataset.task.of.trainable:
        # Rows of one split, whichever, are the set to measure on.
        is_whole = len({row.split for row in rows}) == 1
        tests = rows if is_whole else [row for row in rows if row.split == TEST]
        if not tests:
            raise InputError(
                f"{dataset.where}: kind {dataset.task.kind} is only measured, and its test split has no rows"
            )
        if unused := len(rows) - len(tests):
            dataset.removed["not_of_the_test_split"] = unused
            log = logger.info if dataset.task.datasets[dataset.name].hub else logger.warning
            log(
                f"{dataset.where}: kind {dataset.task.kind} is only measured: rows of other splits than test "
                f"are left out ({unused:,} of {len(rows):,}); without splits, all rows are measured"
            )
        dataset.rows = assign(tests, (0.0, 0.0, 1.0), config.seed)
    elif not splits:
        dataset.rows = assign(rows, shares, config.seed)
        given = {row.split for row in dataset.rows}
        for split, share in zip(SPLITS, shares, strict=True):
            if share and split not in given:
                raise InputError(
                    f"{dataset.where}: the {split} split got none of the {len(rows)} rows; give it a "
                    "larger share with `fractions`, take another `seed`, or add rows"
                )
    elif TRAIN in splits and VALIDATION not in splits:
        share = shares[1] / (shares[0] + shares[1])
        trained = assign([row for row in rows if row.split == TRAIN], (1 - share, share, 0.0), config.seed)
        dataset.rows = trained + [row for row in rows if row.split != TRAIN]


def _keep_apart(datasets: list[Dataset]) -> None:
    """Remove test texts of any dataset from training and validation, and validation texts from training.

    Within a dataset likewise rows of one group, which splits that are given may tear apart.
    """
    tested, validated = (
        set().union(*(keys_of(each.rows, split, not each.task.of.trainable) for each in datasets))
        for split in (TEST, VALIDATION)
    )
    for dataset in datasets:
        for split, seen, later in (
            (VALIDATION, tested, (TEST,)),
            (TRAIN, tested | validated, (TEST, VALIDATION)),
        ):
            groups = {row.group for row in dataset.rows if row.split in later and row.group is not None}
            dataset.rows, removed, negatives = without(dataset.rows, split, seen, groups)
            dataset.removed[f"{split}_seen_in_evaluation"] += removed
            dataset.removed["negatives_seen_in_evaluation"] += negatives
        if dataset.removed[f"{TRAIN}_seen_in_evaluation"] and not keys_of(dataset.rows, TRAIN):
            raise InputError(
                f"{dataset.where}: every training row holds a text, or is of a group, that is evaluated on"
            )


def _drop_repeats(dataset: Dataset) -> None:
    """Keep one row of each pair and negative; labelled and scored rows stay as they were published."""
    if dataset.task.datasets[dataset.name].hub is None:  # published data stay as they are
        _warn_of_rows(dataset)
    if dataset.task.of.trainable and not dataset.task.of.labelled:
        distinct = {(*row.texts(), row.negative, row.split): row for row in reversed(dataset.rows)}
        dataset.removed["duplicate"] = len(dataset.rows) - len(distinct)
        dataset.rows = list(reversed(distinct.values()))


def _warn_of_rows(dataset: Dataset) -> None:
    """Warn of labels that differ in case, and of texts that have several labels, scores or rows."""
    if "score" in dataset.task.of.columns:
        warn_of_scores(dataset.rows, dataset.where)
    if not dataset.task.of.labelled:
        return
    warn_of_case(sorted({str(row.label) for row in dataset.rows}), dataset.where)
    labels: dict[tuple[str | None, str], set[str | None]] = {}
    for row in dataset.rows:
        labels.setdefault((row.split, row.anchor), set()).add(row.label)
    repeated, several = len(dataset.rows) - len(labels), sum(len(own) > 1 for own in labels.values())
    if several or (repeated and dataset.task.kind == "classification"):  # texts to cluster often repeat
        logger.warning(
            f"{dataset.where}: rows repeat a text ({repeated:,}); texts with several labels: {several:,}. "
            "All rows are kept, and count: remove those that are mistakes"
        )


# ---- tables of one dataset -----------------------------------------------------------------------


def _make_tables(
    dataset: Dataset, config: TasksConfig
) -> tuple[dict[str, pa.Table], dict[str, list[Row]], dict[str, Any]]:
    """Return file name -> table, split -> pairs, and the dataset's entry in the manifest."""
    maxima = dict(zip(SPLITS, (config.max_train, config.max_eval, config.max_eval), strict=True))
    splits = {}
    for split, maximum in maxima.items():
        own = [row for row in dataset.rows if row.split == split]
        splits[split] = sample(own, maximum, config.seed, dataset.task.of)
    entry: dict[str, Any] = {
        "source": dataset.described,
        "set_aside": dict(sorted(Counter(str(bad) for _, bad in dataset.bad).items())),
        "removed": {why: count for why, count in sorted(dataset.removed.items()) if count},
    }
    tables, pairs = {}, splits
    if dataset.task.of.labelled:
        rows = [
            {"id": text_id(row.anchor), "text": row.anchor, "label": row.label, "split": split}
            for split, own in splits.items()
            for row in own
        ]
        tables[TEXTS] = pa.Table.from_pylist(rows, TEXTS_SCHEMA)
        made = {split: same_label_pairs(own, config.seed) for split, own in splits.items()}
        pairs = {split: own for split, (own, _) in made.items()}
        labels = {split: {str(row.label) for row in own} for split, own in splits.items()}
        evaluated = labels[VALIDATION] | labels[TEST]
        entry |= {
            "texts": {split: len(own) for split, own in splits.items() if own},
            "classes": len(set().union(*labels.values())),
            "classes_of_one_text": {split: single for split, (_, single) in made.items() if single},
            "classes_not_in_train": sorted(evaluated - labels[TRAIN]) if labels[TRAIN] else [],
        }
        if splits[TRAIN] and not pairs[TRAIN]:
            raise InputError(f"{dataset.where}: no class has two training texts, so there are no pairs")
    tables |= {f"{split}.parquet": _make_pairs_table(own) for split, own in pairs.items() if own}
    return tables, pairs, entry


def _make_pairs_table(rows: list[Row]) -> pa.Table:
    """Return the pairs of a split, as `PAIRS_SCHEMA` has them."""
    return pa.Table.from_pylist(
        [
            {
                "anchor_id": text_id(row.anchor),
                "positive_id": text_id(str(row.positive)),
                "anchor": row.anchor,
                "positive": row.positive,
                "group": row.label,
                "negative": row.negative,
                "score": row.score,
            }
            for row in rows
        ],
        PAIRS_SCHEMA,
    )

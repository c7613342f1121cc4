"""A task file -> the tasks folder: read, check, split, keep apart, draw, pair, write."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from sentence_experts.errors import InputError
from sentence_experts.progress import progress
from sentence_experts.tasks.dataset import (
    PAIRS_SCHEMA,
    TEXTS,
    TEXTS_SCHEMA,
    TasksFolder,
    check_replaceable,
    write_tasks_folder,
)
from sentence_experts.tasks.hierarchy import Hierarchy, Task
from sentence_experts.tasks.labelled import same_label_pairs
from sentence_experts.tasks.reading import Reading, read
from sentence_experts.tasks.rows import Row, SetAside, text_id, text_key, usable_rows
from sentence_experts.tasks.settings import TaskSettings
from sentence_experts.tasks.split import (
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    assign,
    drawn,
    keys_of,
    linked,
    without,
)


@dataclass
class Dataset:
    """One dataset on its way: its rows, what was set aside, and what its manifest entry says."""

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


def compile_tasks(
    file: Path | str, out: Path | str, settings: TaskSettings | None = None, overwrite: bool = False
) -> TasksFolder:
    """Write the datasets of a task file to `out` and return them.

    No text of a validation or test set, of whichever dataset, is in a training set; nor one of a test set in
    a validation set.

    Raises:
        InputError: a task file or source that cannot be used, a class without a text, a split without rows.
        UsageError: `out` is there and `overwrite` is not given, or it holds something else.
    """
    file, out, settings = Path(file), Path(out), settings or TaskSettings.model_validate({})
    check_replaceable(out, overwrite)
    hierarchy = Hierarchy.read(file)
    datasets = []
    with progress("datasets", sum(len(task.datasets) for task in hierarchy.tasks.values())) as advance:
        for task in hierarchy.tasks.values():
            for name in task.datasets:
                datasets.append(_prepared(task, name, file.parent, settings))
                advance()
    _keep_apart(datasets)
    tables: dict[str, pa.Table] = {}
    entries: dict[str, dict[str, Any]] = {task: {} for task in hierarchy.tasks}
    for dataset in datasets:
        own, entry = _tables(dataset, settings)
        tables |= {f"{dataset.task.name}/{dataset.name}/{name}": table for name, table in own.items()}
        entries[dataset.task.name][dataset.name] = entry
    manifest = {
        "settings": settings.model_dump(mode="json") | {"fractions": list(settings.shares)},
        "hierarchy": hierarchy.model_dump(mode="json", exclude_none=True),
        "counts": {
            task: {name: entry.pop("pairs") for name, entry in own.items()} for task, own in entries.items()
        },
        "datasets": entries,
    }
    aside = [
        {"task": each.task.name, "dataset": each.name, **asdict(bad)} for each in datasets for bad in each.bad
    ]
    return write_tasks_folder(out, tables, aside, manifest)


# ---- reading and splitting one dataset -----------------------------------------------------------


def _prepared(task: Task, name: str, folder: Path, settings: TaskSettings) -> Dataset:
    """The dataset, each of its rows in a split."""
    source = task.datasets[name]
    where = f"tasks.{task.name}.datasets.{name}"
    try:
        reading = read(source, task.of, folder)
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
    known = {row.label for row in rows}
    empty = [one for one in bad if one.label is not None and one.label not in known]
    if empty:
        label = empty[0].label
        times = sum(one.label == label for one in empty)
        raise InputError(
            f"{where}: class {label!r} has no text: none of its {times} rows has one (the first is "
            f"{empty[0].where}); give them texts or take them out"
        )


def _drop_duplicates(dataset: Dataset) -> None:
    """Of pairs that occur twice one is enough; labelled and scored rows stay as they were published."""
    if not dataset.task.of.trainable or dataset.task.of.labelled:
        return
    first = {(*row.texts(), row.negative, row.split): row for row in reversed(dataset.rows)}
    kept = list(reversed(first.values()))
    dataset.removed["duplicate"] = len(dataset.rows) - len(kept)
    dataset.rows = kept


def _split(dataset: Dataset, reading: Reading, settings: TaskSettings) -> None:
    """Give each row a split where the source has not: by the shares, or validation out of training."""
    rows, fractions = dataset.rows, settings.shares
    if not dataset.task.of.trainable:
        tests = [row for row in rows if row.split in (None, TEST)]
        dataset.rows = assign(tests, (0.0, 0.0, 1.0), settings.seed)
    elif not reading.splits:
        dataset.rows = assign(rows, fractions, settings.seed)
        shares = dict(zip(SPLITS, fractions, strict=True))
        found = {row.split for row in dataset.rows}
        empty = [split for split in SPLITS if shares[split] and split not in found]
        if empty:
            raise InputError(
                f"{dataset.where}: the {empty[0]} split got none of the {len(rows)} rows; give it more with "
                "--fractions TRAIN,VALIDATION,TEST, take another --seed, or bring more rows"
            )
    elif TRAIN in reading.splits and VALIDATION not in reading.splits:
        share = fractions[1] / (fractions[0] + fractions[1])
        trained = assign([row for row in rows if row.split == TRAIN], (1 - share, share, 0.0), settings.seed)
        dataset.rows = trained + [row for row in rows if row.split != TRAIN]


def _keep_apart(datasets: list[Dataset]) -> None:
    """Take out of training what any dataset evaluates on, and out of validation what any tests on."""
    tested, validated = (
        set().union(*(keys_of(dataset.rows, split) for dataset in datasets)) for split in (TEST, VALIDATION)
    )
    for dataset in datasets:
        for split, seen in ((VALIDATION, tested), (TRAIN, tested | validated)):
            dataset.rows, gone, negatives = without(dataset.rows, split, seen)
            dataset.removed[f"{split}_seen_in_evaluation"] += gone
            dataset.removed["negatives_seen_in_evaluation"] += negatives
        if dataset.removed[f"{TRAIN}_seen_in_evaluation"] and not keys_of(dataset.rows, TRAIN):
            raise InputError(f"{dataset.where}: every training row holds a text that is evaluated on")


# ---- tables of one dataset -----------------------------------------------------------------------


def _tables(dataset: Dataset, settings: TaskSettings) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """File name -> table, and the dataset's entry in the manifest."""
    kind = dataset.task.of
    splits = {}
    for split in SPLITS:
        rows = [row for row in dataset.rows if row.split == split]
        most = settings.max_train if split == TRAIN else settings.max_eval
        splits[split] = drawn(rows, most, settings.seed)
    entry: dict[str, Any] = {
        "source": dataset.described,
        "set_aside": dict(sorted(Counter(map(str, dataset.bad)).items())),
        "removed": {why: count for why, count in sorted(dataset.removed.items()) if count},
    }
    tables = {}
    pairs = splits
    if kind.labelled:
        tables[TEXTS] = _texts_table(splits)
        made = {
            split: same_label_pairs(rows, settings.pairs_per_text, settings.seed)
            for split, rows in splits.items()
        }
        pairs = {split: own for split, (own, _) in made.items()}
        entry |= _classes(splits, {split: lone for split, (_, lone) in made.items() if lone})
        if splits[TRAIN] and not pairs[TRAIN]:
            raise InputError(f"{dataset.where}: no class has two training texts, so there are no pairs")
    tables |= {f"{split}.parquet": _pairs_table(own) for split, own in pairs.items() if own}
    entry["pairs"] = {split: len(own) for split, own in pairs.items() if own}
    return tables, entry


def _classes(splits: dict[str, list[Row]], lone: dict[str, list[str]]) -> dict[str, Any]:
    """What there is to know of the classes: texts, labels that give no pair, labels training has not."""
    labels = {split: {str(row.label) for row in rows} for split, rows in splits.items()}
    evaluated = labels[VALIDATION] | labels[TEST]
    return {
        "texts": {split: len(rows) for split, rows in splits.items() if rows},
        "classes": len(set().union(*labels.values())),
        "classes_of_one_text": lone,
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
    """`PAIRS_SCHEMA`; the group is the label, or for pairs that share a text the least of their positives."""
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

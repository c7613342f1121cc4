"""Tasks -> what the trainer reads: one table of pairs, each text behind its instruction, with its groups."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from sentence_experts.errors import InputError, RouteError, UsageError
from sentence_experts.tasks.dataset import TasksFolder
from sentence_experts.tasks.hierarchy import Task
from sentence_experts.training.router_losses import routed_model
from sentence_experts.training.task_config import STATIC_BATCHES, STATIC_TEMPERATURE, TaskConfig

logger = logging.getLogger(__name__)

Numbers = NDArray[np.int64]
TEXT_COLUMNS = ("anchor", "positive", "negative")
NONE = -1


@dataclass(frozen=True)
class TrainedTask:
    """How one task is trained, everything decided.

    Attributes:
        name: the task's name.
        datasets: its datasets' names.
        instructions: what stands in front of an anchor, and of a positive or negative; "" for nothing.
        batches: "homogeneous" or "heterogeneous".
        temperature: that of its batches.
        weight: its chance to be drawn, to scale; None where tasks are drawn in proportion to their pairs.
    """

    name: str
    datasets: tuple[str, ...]
    instructions: tuple[str, str]
    batches: str
    temperature: float
    weight: float | None


def settings_of(tasks: Sequence[Task], config: TaskConfig) -> tuple[TrainedTask, ...]:
    """How these tasks are trained under this config.

    Raises:
        UsageError: weights are asked for, or given, but not for every task.
    """
    static = config.curriculum == "static"
    weighted = _weighted(tasks, config)
    return tuple(
        TrainedTask(
            task.name,
            tuple(task.datasets),
            _instructions(task) if config.instructions else ("", ""),
            config.batches or (STATIC_BATCHES if static else task.batches or task.of.batches),
            config.temperature or (STATIC_TEMPERATURE if static else task.temperature or task.of.temperature),
            task.weight if weighted else None,
        )
        for task in tasks
    )


def _instructions(task: Task) -> tuple[str, str]:
    return task.instructions[task.anchor_route], task.instructions[task.positive_route]


def _weighted(tasks: Sequence[Task], config: TaskConfig) -> bool:
    without = [task.name for task in tasks if task.weight is None]
    wanted = config.sampling == "weights" or (config.sampling is None and len(without) < len(tasks))
    if wanted and without:
        raise UsageError(
            f"sampling by weights: the task file gives no weight for {', '.join(without)}; add one, or take "
            "--sampling proportional"
        )
    return wanted


def chosen_tasks(folder: TasksFolder, config: TaskConfig, model: SentenceTransformer) -> list[Task]:
    """The tasks that a run learns from; with `only_expert`, those with a route to that expert.

    Raises:
        UsageError: there is no such task, it is only measured, or none has a route to the expert.
        InputError: the folder has no task that models are trained on.
        RouteError: the model has no route for a task, or has it with another instruction.
    """
    trainable = {task.name: task for task in folder.hierarchy.trainable()}
    if not trainable:
        raise InputError(f"{folder.path}: none of its tasks is for training, all are only measured")
    unknown = [name for name in config.only_tasks or [] if name not in trainable]
    if unknown:
        raise UsageError(
            f"--only-tasks: no task {', '.join(unknown)} to train on; there are {', '.join(trainable)}"
        )
    tasks = [task for name, task in trainable.items() if not config.only_tasks or name in config.only_tasks]
    check_routes(tasks, config, model)
    return _of_expert(tasks, config.only_expert, model) if config.only_expert else tasks


def check_routes(tasks: Sequence[Task], config: TaskConfig, model: SentenceTransformer) -> None:
    """Whether the model can tell these tasks' texts apart as the config wants.

    Raises:
        RouteError: it lacks a route, has it with another text, or needs instructions that are left out.
    """
    routed = routed_model(model)
    if routed is None or not routed.config.routes:
        return
    known = {route.name: route.text for route in routed.routes}
    if not config.instructions:
        raise RouteError(
            "--no-instructions: this model finds its expert by the instruction; take a dense model"
        )
    for task in tasks:
        for route, instruction in task.instructions.items():
            if known.get(route) != instruction:
                has = f"has {known[route]!r} for it" if route in known else f"has {', '.join(known)}"
                raise RouteError(
                    f"task {task.name}: route {route!r} with instruction {instruction!r} is not the model's, "
                    f"which {has}; extend the base with these tasks, or change the task file"
                )


def _of_expert(tasks: Sequence[Task], expert: str, model: SentenceTransformer) -> list[Task]:
    routed = routed_model(model)
    if routed is None or expert not in routed.config.experts:
        return list(tasks)  # `choose_trainable` says what is wrong
    number = list(routed.config.experts).index(expert)
    to_it = {route.name for route in routed.routes if route.expert == number}
    found = [task for task in tasks if to_it & task.instructions.keys()]
    if not found:
        raise UsageError(
            f"--only-expert {expert}: none of the tasks {', '.join(task.name for task in tasks)} leads to it"
        )
    return found


@dataclass(frozen=True)
class TrainingTasks:
    """All training pairs of a run in one table.

    Attributes:
        settings: one a task; a task's number is its place here, and
            datasets are numbered through all tasks.
        rows: columns anchor, positive and negative (texts behind their instructions; negative is None in
            tasks without) and label: [task, dataset, group of the anchor, of the positive, of the negative].
            Texts of one group are positives of each other.
        texts: (rows, 2) a number for the text of each anchor and positive, without its instruction.
    """

    settings: tuple[TrainedTask, ...]
    rows: Dataset
    texts: Numbers

    @classmethod
    def of(cls, folder: TasksFolder, settings: tuple[TrainedTask, ...]) -> TrainingTasks:
        """The train splits of these tasks.

        Raises:
            InputError: a task has no training pairs.
        """
        parts: list[pa.Table] = []
        groups = dataset = 0
        for number, task in enumerate(settings):
            tables = {name: folder.pairs(task.name, name, "train") for name in task.datasets}
            if not sum(table.num_rows for table in tables.values()):
                raise InputError(f"{folder.path}: task {task.name} has no training pairs")
            negatives = _have_negatives(task.name, tables)
            for table in tables.values():
                labels, groups = _labels(table, number, dataset, groups, negatives)
                parts.append(_columns(table, task.instructions, labels, negatives))
                dataset += 1
        table = pa.concat_tables(parts)
        plain = pa.chunked_array(
            [chunk for name in ("raw_anchor", "raw_positive") for chunk in table[name].chunks]
        )
        texts = _codes(plain).reshape(2, -1).T
        return cls(settings, Dataset(table.drop_columns(["raw_anchor", "raw_positive"])), texts)

    @property
    def places(self) -> Numbers:
        """(rows, 2) the task and the dataset of each pair."""
        labels = self.rows.data.column("label").combine_chunks()
        return np.asarray(labels.flatten()).reshape(len(self.rows), -1)[:, :2]


def _have_negatives(task: str, tables: Mapping[str, pa.Table]) -> bool:
    """Whether every pair of the task has a mined negative; a few that have none leave out all."""
    lacking = {name: table["negative"].null_count for name, table in tables.items()}
    rows = {name: table.num_rows for name, table in tables.items()}
    if any(lacking[name] < rows[name] for name in tables) and any(lacking.values()):
        names = ", ".join(f"{name} ({count:,})" for name, count in lacking.items() if count)
        logger.info(f"task {task}: mined negatives are not used, some pairs have none: {names}")
    return not any(lacking.values())


def _codes(texts: pa.ChunkedArray) -> Numbers:
    """A number for each text, the same for equal texts."""
    encoded = texts.combine_chunks().dictionary_encode()
    codes: Numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _labels(
    table: pa.Table, task: int, dataset: int, first_group: int, negatives: bool
) -> tuple[Numbers, int]:
    """[task, dataset, groups of anchor, positive, negative] of each row, and the first group left over.

    A negative whose text stands elsewhere in the dataset is of that text's group; any other is of its own.
    """
    rows = table.num_rows
    groups = _codes(table["group"]) + first_group
    following = first_group + rows
    of_negatives = np.full(rows, NONE)
    if negatives:
        of_negatives = following + np.arange(rows)
        following += rows
        for column in ("anchor", "positive"):
            found = pc.index_in(table["negative"], value_set=table[column].combine_chunks())
            places = found.fill_null(NONE).to_numpy()
            of_negatives = np.where(places == NONE, of_negatives, groups[places])
        own = pc.equal(table["negative"], table["positive"]).to_numpy()
        of_negatives = np.where(own, groups, of_negatives)
    columns = [np.full(rows, task), np.full(rows, dataset), groups, groups, of_negatives]
    return np.stack(columns, axis=1).astype(np.int64), following


def _columns(table: pa.Table, instructions: tuple[str, str], labels: Numbers, negatives: bool) -> pa.Table:
    leads = dict(zip(TEXT_COLUMNS, (*instructions, instructions[1]), strict=True))
    columns: dict[str, Any] = {name: with_instruction(lead, table[name]) for name, lead in leads.items()}
    if not negatives:
        columns["negative"] = pa.nulls(table.num_rows, pa.large_string())
    columns["label"] = pa.FixedSizeListArray.from_arrays(pa.array(labels.ravel()), labels.shape[1]).cast(
        pa.list_(pa.int64())
    )
    for name in ("anchor", "positive"):
        columns[f"raw_{name}"] = table[name].cast(pa.large_string())
    return pa.table(columns)


def with_instruction(instruction: str, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each text behind the instruction; null stays null."""
    lead, between = (pa.scalar(text, pa.large_string()) for text in (instruction, ""))
    joined: pa.ChunkedArray = pc.binary_join_element_wise(lead, texts.cast(pa.large_string()), between)
    return joined


class TaskCollator(SentenceTransformerDataCollator):
    """Collates a batch of one task, with negatives where the task has them."""

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate {anchor, positive, negative, label} rows; without negatives the labels lose their place."""
        return super().__call__(list(_without_missing(features)))


def _without_missing(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["negative"] is None:
            kept = {name: value for name, value in row.items() if name != "negative"}
            yield {**kept, "label": row["label"][:-1]}
        else:
            yield row

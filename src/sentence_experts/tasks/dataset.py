"""Task datasets, in memory or on disk: pairs per task, dataset and split, labelled texts, a manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_experts import __version__
from sentence_experts.errors import InputError, UsageError
from sentence_experts.pairs.dataset import parquet_hash
from sentence_experts.storage import (
    read_json,
    replacing_folder,
    sha256_file,
    sha256_text,
    write_parquet,
    write_text,
)
from sentence_experts.tasks.split import SPLITS
from sentence_experts.tasks.task_file import MANIFEST, Task, TaskFile

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
TEXTS = "texts.parquet"
SET_ASIDE = "set_aside.jsonl"

PAIRS_SCHEMA = pa.schema([
    pa.field("anchor_id", pa.string(), nullable=False),
    pa.field("positive_id", pa.string(), nullable=False),
    pa.field("anchor", pa.string(), nullable=False),
    pa.field("positive", pa.string(), nullable=False),
    pa.field("group", pa.string(), nullable=False),
    pa.field("negative", pa.string()),
    pa.field("score", pa.float64()),
])  # fmt: skip
"""Texts of one group are positives of each other: of one label, or pairs that share a text. Equal texts have
equal ids."""

TEXTS_SCHEMA = pa.schema([
    pa.field("id", pa.string(), nullable=False),
    pa.field("text", pa.string(), nullable=False),
    pa.field("label", pa.string(), nullable=False),
    pa.field("split", pa.string(), nullable=False),
])  # fmt: skip


@dataclass(frozen=True, repr=False, eq=False)
class Tasks:
    """The compiled datasets of a task file, in memory or in a folder.

    Attributes:
        path: the folder; None if the datasets are in memory.
        manifest: the settings, counts and hashes of the datasets.
        task_file: the tasks with their routes, instructions, experts and datasets.
        tables: file name -> table, of datasets in memory.
        set_aside: the records that are not used and why, of datasets in memory.
    """

    path: Path | None
    manifest: dict[str, Any]
    task_file: TaskFile
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    set_aside: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def open(cls, path: Path | str) -> Tasks:
        """Open a folder written by `compile_tasks` or `Tasks.save`.

        Raises:
            InputError: the folder holds no task datasets, or a file is missing.
        """
        path = Path(path)
        if not (path / MANIFEST).is_file():
            raise InputError(
                f"{path}: no task datasets here ({MANIFEST} missing); make them with sentence-experts tasks"
            )
        manifest = read_json(path / MANIFEST)
        task_file = TaskFile.from_manifest(path, manifest)
        if manifest["format"] != FORMAT:
            raise InputError(
                f"{path}: written in format {manifest['format']}, this program reads {FORMAT}: write it again"
            )
        missing = [name for name in manifest["files"] if not (path / name).is_file()]
        if missing:
            raise InputError(f"{path}: {missing[0]} is missing; write the folder again")
        return cls(path, manifest, task_file)

    @classmethod
    def of(cls, source: Tasks | Path | str) -> Tasks:
        """`source` as tasks: a `Tasks`, or the path of a folder."""
        return source if isinstance(source, cls) else cls.open(str(source))

    @classmethod
    def in_memory(
        cls,
        tables: Mapping[str, pa.Table],
        manifest: Mapping[str, Any],
        set_aside: Sequence[Mapping[str, Any]] = (),
    ) -> Tasks:
        """Datasets of tables by their file name, `task/dataset/split.parquet`."""
        head = {"kind": "tasks", "format": FORMAT, "version": __version__}
        task_file = TaskFile.from_manifest(Path("tasks in memory"), {**head, **manifest})
        return cls(None, {**head, **manifest}, task_file, tables, set_aside)

    @property
    def hierarchy(self) -> TaskFile:
        """The former name of `task_file`."""
        return self.task_file

    @property
    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """Task -> dataset -> split -> number of pairs."""
        counts: dict[str, dict[str, dict[str, int]]] = self.manifest["counts"]
        return counts

    @property
    def name(self) -> str:
        """The name of the folder, or "tasks in memory"."""
        return "tasks in memory" if self.path is None else self.path.resolve().name

    def pairs(self, task: str, dataset: str, split: str) -> pa.Table:
        """The pairs of a split (`PAIRS_SCHEMA`); an empty table if the dataset has no such split.

        Raises:
            UsageError: no such task, dataset or split.
        """
        self._check(task, dataset, split)
        table = self._table(f"{task}/{dataset}/{split}.parquet")
        return PAIRS_SCHEMA.empty_table() if table is None else table

    def texts(self, task: str, dataset: str, split: str) -> pa.Table:
        """The labelled texts of a split: string columns id, text, label.

        Raises:
            UsageError: no such task, dataset or split, or its rows are not labelled texts.
        """
        self._check(task, dataset, split)
        kind = self.task_file.tasks[task].of
        if not kind.labelled:
            raise UsageError(f"{task} is of kind {kind.name}: it has pairs, no labelled texts")
        table = self._table(f"{task}/{dataset}/{TEXTS}")
        if table is None:
            raise InputError(f"{self.path or self.name}: {task}/{dataset}/{TEXTS} is missing")
        return table.filter(pc.equal(table["split"], split)).drop_columns(["split"])

    def file_hash(self, name: str) -> str | None:
        """The SHA-256 of a file by its name (`task/dataset/split.parquet`); None if there is none."""
        if self.path is None:
            table = self.tables.get(name)
            return None if table is None else parquet_hash(table)
        return sha256_file(self.path / name) if (self.path / name).is_file() else None

    def fingerprint(self) -> str:
        """A hash that changes when the bytes of any table, or the task file, do; the same after saving."""
        files = self.manifest.get("files")
        if files is None:
            files = {name: parquet_hash(table) for name, table in self.tables.items()}
            files[SET_ASIDE] = hashlib.sha256(self._set_aside_lines().encode()).hexdigest()
        listed = (f"{name}={digest}" for name, digest in sorted(files.items()))
        return sha256_text(self.task_file.model_dump_json(), *listed)

    def task(self, name: str) -> Task:
        """The task of this name.

        Raises:
            UsageError: there is none.
        """
        return self.task_file.task(name)

    def save(self, out: Path | str, overwrite: bool = False) -> Tasks:
        """Write the datasets to a folder, completely or not at all, and return them as opened from there.

        Raises:
            UsageError: `out` exists and `overwrite` is not given, or it holds something else.
        """
        out = Path(out)
        check_replaceable(out, overwrite)
        with replacing_folder(out) as folder:
            names = self.tables if self.path is None else self.manifest["files"]
            for name in names:
                if name != SET_ASIDE:
                    write_parquet(folder / name, self._table(name))
            write_text(folder / SET_ASIDE, self._set_aside_lines())
            files = {name: sha256_file(folder / name) for name in dict.fromkeys([*names, SET_ASIDE])}
            # Not with sorted keys: the order of tasks and of their routes means something.
            manifest = json.dumps({**self.manifest, "files": files}, indent=1, ensure_ascii=False)
            write_text(folder / MANIFEST, f"{manifest}\n")
        return Tasks.open(out)

    def to_pandas(self) -> pd.DataFrame:
        """All pairs as one DataFrame, with columns `task`, `dataset` and `split`."""
        tables = []
        for task, datasets in self.counts.items():
            for dataset, splits in datasets.items():
                for split in splits:
                    table = self.pairs(task, dataset, split)
                    for number, (column, value) in enumerate(
                        (("task", task), ("dataset", dataset), ("split", split))
                    ):
                        table = table.add_column(number, column, pa.array([value] * table.num_rows))
                    tables.append(table)
        return pa.concat_tables(tables).to_pandas()

    def __repr__(self) -> str:
        tasks = []
        for task, datasets in self.counts.items():
            sums = {split: sum(own.get(split, 0) for own in datasets.values()) for split in SPLITS}
            tasks.append(f"{task} ({', '.join(f'{split}: {n:,}' for split, n in sums.items() if n)})")
        return f"Tasks({', '.join(tasks)}; {'in memory' if self.path is None else self.path})"

    def _set_aside_lines(self) -> str:
        if self.path is not None:
            return (self.path / SET_ASIDE).read_text(encoding="utf-8")
        return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in self.set_aside)

    def _table(self, file: str) -> pa.Table | None:
        if self.path is None:
            return self.tables.get(file)
        return pq.read_table(self.path / file) if (self.path / file).is_file() else None

    def _check(self, task: str, dataset: str, split: str) -> None:
        datasets = self.task(task).datasets
        if dataset not in datasets:
            raise UsageError(f"task {task!r} has no dataset {dataset!r}; it has {', '.join(datasets)}")
        if split not in SPLITS:
            raise UsageError(f"no split {split!r}; there are {', '.join(SPLITS)}")


def check_replaceable(out: Path, overwrite: bool) -> None:
    """Refuse to write task datasets over anything else, and over others without `overwrite`.

    Raises:
        UsageError: `out` exists and `overwrite` is not given, or it holds something else.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    manifest = out / MANIFEST
    if not manifest.is_file() or read_json(manifest).get("kind") != "tasks":
        raise UsageError(f"{out} exists and holds no task datasets; choose another `out`")
    if not overwrite:
        raise UsageError(f"{out} exists already; choose another `out`, or replace it with `overwrite`")


def write_tasks_folder(
    out: Path,
    tables: Mapping[str, pa.Table],
    set_aside: Sequence[Mapping[str, Any]],
    manifest: Mapping[str, Any],
) -> Tasks:
    """Write tables (by their path in the folder), the records set aside and the manifest."""
    return Tasks.in_memory(tables, manifest, set_aside).save(out, overwrite=True)


TasksFolder = Tasks

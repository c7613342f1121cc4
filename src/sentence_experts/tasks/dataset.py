"""The tasks folder on disk: pairs of each task, dataset and split, labelled texts, a manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_experts import __version__
from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import (
    read_json,
    replacing_folder,
    sha256_file,
    sha256_text,
    write_parquet,
    write_text,
)
from sentence_experts.tasks.hierarchy import MANIFEST, Hierarchy, Task
from sentence_experts.tasks.split import SPLITS

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


@dataclass(frozen=True)
class TasksFolder:
    """Task datasets that have been written by `sentence-experts tasks`."""

    path: Path
    manifest: dict[str, Any]
    hierarchy: Hierarchy

    @classmethod
    def open(cls, path: Path | str) -> TasksFolder:
        """Open a tasks folder.

        Raises:
            InputError: the folder holds none, or one that is not whole.
        """
        path = Path(path)
        if not (path / MANIFEST).is_file():
            raise InputError(
                f"{path}: no task datasets here ({MANIFEST} missing); write them with sentence-experts tasks"
            )
        manifest = read_json(path / MANIFEST)
        hierarchy = Hierarchy.from_manifest(path, manifest)
        if manifest["format"] != FORMAT:
            raise InputError(
                f"{path}: written in format {manifest['format']}, this program reads {FORMAT}: write it again"
            )
        missing = [name for name in manifest["files"] if not (path / name).is_file()]
        if missing:
            raise InputError(f"{path}: {missing[0]} is missing; write the folder again")
        return cls(path, manifest, hierarchy)

    @property
    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """Task -> dataset -> split -> pairs."""
        counts: dict[str, dict[str, dict[str, int]]] = self.manifest["counts"]
        return counts

    def pairs(self, task: str, dataset: str, split: str) -> pa.Table:
        """The pairs of a split (`PAIRS_SCHEMA`); none where the dataset has no such split.

        Raises:
            UsageError: no such task, dataset or split.
        """
        self._check(task, dataset, split)
        file = self.path / task / dataset / f"{split}.parquet"
        return pq.read_table(file) if file.is_file() else PAIRS_SCHEMA.empty_table()

    def texts(self, task: str, dataset: str, split: str) -> pa.Table:
        """The labelled texts of a split: string columns id, text, label.

        Raises:
            UsageError: no such task, dataset or split, or its rows are no labelled texts.
        """
        self._check(task, dataset, split)
        kind = self.hierarchy.tasks[task].of
        if not kind.labelled:
            raise UsageError(f"{task} is of kind {kind.name}: it has pairs, no labelled texts")
        table = pq.read_table(self.path / task / dataset / TEXTS)
        return table.filter(pc.equal(table["split"], split)).drop_columns(["split"])

    def fingerprint(self) -> str:
        """A hash that changes when the bytes of any table, or the hierarchy, do."""
        files = sorted(self.manifest["files"].items())
        return sha256_text(self.hierarchy.model_dump_json(), *(f"{name}={digest}" for name, digest in files))

    def task(self, name: str) -> Task:
        """The task of this name.

        Raises:
            UsageError: there is none.
        """
        return self.hierarchy.task(name)

    def _check(self, task: str, dataset: str, split: str) -> None:
        datasets = self.hierarchy.task(task).datasets
        if dataset not in datasets:
            raise UsageError(f"task {task!r} has no dataset {dataset!r}; it has {', '.join(datasets)}")
        if split not in SPLITS:
            raise UsageError(f"no split {split!r}; there are {', '.join(SPLITS)}")


def check_replaceable(out: Path, overwrite: bool) -> None:
    """Whether task datasets may be written to `out`.

    Raises:
        UsageError: `out` is there and `overwrite` is not given, or it holds something else.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    manifest = out / MANIFEST
    if not manifest.is_file() or read_json(manifest).get("kind") != "tasks":
        raise UsageError(f"{out} is there and holds no task datasets; choose another --out")
    if not overwrite:
        raise UsageError(f"{out} is there already; choose another --out, or replace it with --overwrite")


def write_tasks_folder(
    out: Path,
    tables: Mapping[str, pa.Table],
    set_aside: Sequence[Mapping[str, Any]],
    manifest: Mapping[str, Any],
) -> TasksFolder:
    """Write tables (by their path in the folder), the records set aside and the manifest, whole or not."""
    with replacing_folder(out) as folder:
        for name, table in tables.items():
            write_parquet(folder / name, table)
        lines = [json.dumps(each, ensure_ascii=False) for each in set_aside]
        write_text(folder / SET_ASIDE, "".join(f"{line}\n" for line in lines))
        files = {name: sha256_file(folder / name) for name in (*tables, SET_ASIDE)}
        head = {"kind": "tasks", "format": FORMAT, "version": __version__, "files": files}
        # Not with sorted keys: the order of tasks and of their routes means something.
        text = json.dumps({**head, **manifest}, indent=1, ensure_ascii=False)
        write_text(folder / MANIFEST, f"{text}\n")
    return TasksFolder.open(out)

"""Task datasets, in memory or on disk: pairs per task, dataset and split, labelled texts, a manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.errors import UsageError
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.pairs.table_folder import TableFolder, kind_of
from sentence_experts.storage import sha256_text
from sentence_experts.tasks.split import SPLITS
from sentence_experts.tasks.task_file import TaskFile

if TYPE_CHECKING:
    import pandas as pd

TEXTS = "texts.parquet"
SET_ASIDE = "set_aside.jsonl"


def _read_texts(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.string(), nullable=False) for name in names]


TEXTS_SCHEMA = pa.schema(_read_texts("id", "text", "label", "split"))
PAIRS_SCHEMA = pa.schema([
    *_read_texts("anchor_id", "positive_id", "anchor", "positive"),
    pa.field("group", pa.string()),
    pa.field("negative", pa.string()),
    pa.field("score", pa.float64()),
])  # fmt: skip
"""`group` is the label that the two texts share, of tasks with labels. Equal texts have equal ids."""


@dataclass(frozen=True, repr=False, eq=False)
class Tasks(TableFolder):
    """The compiled datasets of a task file, in memory or in a folder.

    Attributes:
        task_file: the tasks with their routes, instructions, experts and datasets.
        set_aside: the records that are not used and why, of datasets in memory.

    Example:
        >>> titles = {"corpus": "corpus", "anchor": "title", "positive": "abstract"}
        >>> tasks = compile_tasks({"search": {"kind": "retrieval", "datasets": {"papers": titles}}})
        >>> tasks.task_file.instructions()
        {'query': 'search query: ', 'document': 'search document: '}
    """

    task_file: TaskFile = field(kw_only=True)
    set_aside: Sequence[Mapping[str, Any]] = ()

    kind = "tasks"
    sections = ("counts", "datasets", "hierarchy")
    names = (SET_ASIDE,)

    @classmethod
    def open(cls, path: Path | str) -> Tasks:
        """Open a folder written by `compile_tasks` or `Tasks.save`.

        Raises:
            InputError: the folder holds no task datasets, or a file is missing.
        """
        manifest = cls.read_manifest(Path(path))
        return cls(Path(path), manifest, task_file=TaskFile.from_manifest(Path(path), manifest))

    @classmethod
    def of(cls, source: Tasks | Path | str) -> Tasks:
        """Return `source` as tasks: a `Tasks`, or the path of a folder."""
        return source if isinstance(source, cls) else cls.open(str(source))

    @classmethod
    def in_memory(
        cls,
        tables: Mapping[str, pa.Table],
        manifest: Mapping[str, Any],
        set_aside: Sequence[Mapping[str, Any]] = (),
    ) -> Tasks:
        """Return datasets of tables by their file name, `task/dataset/split.parquet`.

        Their manifest has their `hierarchy` and `counts`, and in `datasets` how each was compiled, if it was.
        """
        manifest = cls.new_manifest(**{"datasets": {}, **manifest})
        task_file = TaskFile.from_manifest(Path("tasks in memory"), manifest)
        return cls(None, manifest, tables, task_file=task_file, set_aside=set_aside)

    @property
    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """Number of pairs by task, dataset and split."""
        return self.manifest["counts"]  # type: ignore[no-any-return]

    def pairs(self, task: str, dataset: str, split: str) -> pa.Table:
        """Return the pairs of a split (`PAIRS_SCHEMA`); an empty table if the dataset has no such split.

        Raises:
            UsageError: no such task, dataset or split.
        """
        self._check(task, dataset, split)
        table = self.table(f"{task}/{dataset}/{split}.parquet")
        return PAIRS_SCHEMA.empty_table() if table is None else table

    def texts(self, task: str, dataset: str, split: str) -> pa.Table:
        """Return the labelled texts of a split: string columns id, text, label.

        Raises:
            UsageError: no such task, dataset or split, or its rows are not labelled texts.
        """
        self._check(task, dataset, split)
        table = self.table(f"{task}/{dataset}/{TEXTS}")
        if table is None:
            raise UsageError(f"{task}/{dataset} has pairs, no labelled texts")
        return table.filter(pc.equal(table["split"], split)).drop_columns(["split"])

    def _check(self, task: str, dataset: str, split: str) -> None:
        tasks = self.task_file.tasks
        datasets = tasks[task].datasets if task in tasks else {}
        for kind, name, known in (
            ("task", task, tasks),
            ("dataset", dataset, datasets),
            ("split", split, SPLITS),
        ):
            if name not in known:
                raise UsageError(f"no {kind} {name!r}; there are {', '.join(known)}")

    def fingerprint(self) -> str:
        """Return a hash that changes when any table or the task file does; the same after saving."""
        files = (f"{name}={digest}" for name, digest in self.hashes().items())
        return sha256_text(self.task_file.model_dump_json(), *files)

    def to_pandas(self) -> pd.DataFrame:
        """Return all pairs as one DataFrame, with columns `task`, `dataset` and `split`."""
        import pandas as pd

        frames = [
            self.pairs(task, dataset, split).to_pandas().assign(task=task, dataset=dataset, split=split)
            for task, datasets in self.counts.items()
            for dataset, splits in datasets.items()
            for split in splits
        ]
        frame = pd.concat(frames, ignore_index=True)
        return frame[["task", "dataset", "split", *PAIRS_SCHEMA.names]]

    def __repr__(self) -> str:
        tasks = []
        for task, datasets in self.counts.items():
            sums = {split: sum(own.get(split, 0) for own in datasets.values()) for split in SPLITS}
            sums["left out"] = sum(self.count_left_out(task, name) for name in datasets)
            tasks.append(f"{task} ({', '.join(f'{split}: {n:,}' for split, n in sums.items() if n)})")
        return f"Tasks({', '.join(tasks)}; {'in memory' if self.path is None else self.path})"

    def count_left_out(self, task: str, dataset: str) -> int:
        """Return the number of rows of a dataset that are set aside or removed; the manifest says why."""
        entry = self.manifest["datasets"][task][dataset]
        reasons = {**entry["set_aside"], **entry["removed"]}
        return sum(count for why, count in reasons.items() if not why.startswith("negatives_"))

    def other_files(self) -> dict[str, str]:
        """Return the records that are set aside, one JSON object per line."""
        if self.path is not None:
            return {SET_ASIDE: (self.path / SET_ASIDE).read_text(encoding="utf-8")}
        lines = (json.dumps(record, ensure_ascii=False) for record in self.set_aside)
        return {SET_ASIDE: "".join(f"{line}\n" for line in lines)}


def open_dataset(source: Any, split: str | None = "train", labelled: bool = False) -> Pairs | Tasks:
    """Return `source` as tasks, if it is a `Tasks` or the folder of one; otherwise as pairs (`Pairs.of`)."""
    if isinstance(source, Tasks) or kind_of(source) == Tasks.kind:
        return Tasks.of(source)
    return Pairs.of(source, split, labelled)

"""The validation figure of training on tasks: how well positives are found among others (nDCG@10).

One figure for all kinds of tasks, because it needs nothing but pairs: an anchor's relevant texts are those of
its group (its label, its document) among the validation split's positives. The tests of each kind (accuracy,
V-measure) are for the end, on the test split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from sentence_experts.encoding.encoder import BatchEncoder, Vectors
from sentence_experts.errors import InputError
from sentence_experts.tasks.dataset import TasksFolder
from sentence_experts.training.task_data import TrainedTask

CUTOFF = 10
NDCG = "ndcg_at_10"
ANCHORS_AT_ONCE = 256


@dataclass(frozen=True)
class SearchSet:
    """Anchors, the texts they search among, and which of those they should find.

    Attributes:
        anchors: the different anchor texts, behind their instruction.
        candidates: the different positive texts, behind theirs.
        relevant: (anchors, candidates), above 0 where the two share a group.
        same: (anchors, candidates), above 0 where the two are one text, which is no finding.
    """

    anchors: list[str]
    candidates: list[str]
    relevant: csr_array
    same: csr_array

    @classmethod
    def of(cls, table: pa.Table, instructions: tuple[str, str]) -> SearchSet:
        """The search that a table of pairs gives."""
        anchors, anchor_of = _different(table["anchor"])
        candidates, candidate_of = _different(table["positive"])
        groups, group_of = _different(table["group"])
        member = csr_array(
            (np.ones(len(anchor_of), dtype=np.int32), (anchor_of, group_of)), (len(anchors), len(groups))
        )
        holder = csr_array(
            (np.ones(len(candidate_of), dtype=np.int32), (candidate_of, group_of)),
            (len(candidates), len(groups)),
        )
        place = {text: number for number, text in enumerate(candidates)}
        both = [(row, place[text]) for row, text in enumerate(anchors) if text in place]
        rows, columns = np.array(both, dtype=np.int64).reshape(-1, 2).T
        same = csr_array(
            (np.ones(len(both), dtype=np.int32), (rows, columns)), (len(anchors), len(candidates))
        )
        first, second = instructions
        return cls(
            [first + text for text in anchors],
            [second + text for text in candidates],
            member @ holder.T,
            same,
        )

    def ndcg(self, anchors: Vectors, candidates: Vectors) -> float | None:
        """The mean nDCG@10 of the anchors that have something to find; None where none has.

        Args:
            anchors: (anchors, dimensions) of length one.
            candidates: (candidates, dimensions) of length one.
        """
        found: list[float] = []
        for start in range(0, len(anchors), ANCHORS_AT_ONCE):
            part = slice(start, start + ANCHORS_AT_ONCE)
            same = self.same[part].toarray() > 0
            relevant = (self.relevant[part].toarray() > 0) & ~same
            scores = np.where(same, -np.inf, anchors[part] @ candidates.T)
            found.extend(ndcg_at(CUTOFF, scores, relevant))
        return fmean(found) if found else None


def ndcg_at(cutoff: int, scores: NDArray[np.floating], relevant: NDArray[np.bool_]) -> list[float]:
    """nDCG of each row that has a relevant candidate (Romero 2025, appendix C.1, relevance 0 or 1).

    Args:
        cutoff: how many of the highest scores count.
        scores: (rows, candidates); of equal ones the first comes first.
        relevant: (rows, candidates).
    """
    rows = relevant.any(axis=1)
    top = np.argsort(-scores[rows], axis=1, kind="stable")[:, :cutoff]
    gains = 1 / np.log2(np.arange(2, top.shape[1] + 2))
    reached = (np.take_along_axis(relevant[rows], top, axis=1) * gains).sum(axis=1)
    ideal = np.cumsum(gains)[np.minimum(relevant[rows].sum(axis=1), top.shape[1]) - 1]
    values: list[float] = (reached / ideal).tolist()
    return values


def _different(column: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int64]]:
    """The different values, in the order they come, and the number of each row's value."""
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


class TaskEvaluator(SentenceEvaluator):
    """nDCG@10 on the validation splits: `{name}_ndcg_at_10` and `{name}_{task}_ndcg_at_10`.

    A task's figure is the mean over its datasets, and the figure of all is the mean over the tasks.
    """

    def __init__(
        self, searches: Mapping[str, Sequence[SearchSet]], name: str = "validation", batch_size: int = 32
    ) -> None:
        """Args:
        searches: task -> one search a dataset.
        name: the keys' prefix.
        batch_size: texts encoded at once.
        """
        super().__init__()
        self.searches = searches
        self.name = name
        self.batch_size = batch_size
        self.greater_is_better = True
        self.primary_metric = f"{name}_{NDCG}"

    @classmethod
    def of(cls, folder: TasksFolder, settings: Sequence[TrainedTask], batch_size: int) -> TaskEvaluator:
        """The searches of these tasks' validation splits.

        Raises:
            InputError: a task has nothing to find in its validation split.
        """
        searches: dict[str, list[SearchSet]] = {}
        for task in settings:
            tables = [folder.pairs(task.name, dataset, "validation") for dataset in task.datasets]
            searches[task.name] = [
                SearchSet.of(table, task.instructions) for table in tables if table.num_rows
            ]
            if not any(
                (one.relevant - one.relevant.multiply(one.same)).count_nonzero()
                for one in searches[task.name]
            ):
                raise InputError(
                    f"{folder.path}: the validation split of task {task.name} has no pair to find, and "
                    "it chooses the best step: give the task one"
                )
        return cls(searches, batch_size=batch_size)

    def __call__(  # type: ignore[override]  # of all base models, only a SentenceTransformer gives vectors
        self,
        model: SentenceTransformer,
        output_path: str | Path | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Evaluate `model`; nothing is written, `output_path` is there for the trainer."""
        encoder = BatchEncoder(model, self.batch_size, "the model in training")
        tasks: dict[str, float] = {}
        for task, searches in self.searches.items():
            figures = [_figure(encoder, search) for search in searches]
            tasks[task] = fmean(figure for figure in figures if figure is not None)
        found: dict[str, float] = {f"{self.name}_{NDCG}": fmean(tasks.values())}
        found |= {f"{self.name}_{task}_{NDCG}": figure for task, figure in tasks.items()}
        self.store_metrics_in_model_card_data(model, found, epoch, steps)
        return found

    def get_config_dict(self) -> dict[str, Any]:
        """The settings that the model card shows."""
        return {"tasks": list(self.searches)}


def _figure(encoder: BatchEncoder, search: SearchSet) -> float | None:
    vectors = encoder.encode([*search.anchors, *search.candidates], normalize=True)
    return search.ndcg(vectors[: len(search.anchors)], vectors[len(search.anchors) :])

"""The kinds of tasks: their rows, and how they are trained and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HOMOGENEOUS, HETEROGENEOUS = "homogeneous", "heterogeneous"
SEARCH: Mapping[str, str] = {"query": "search query: ", "document": "search document: "}
CLASSIFICATION: Mapping[str, str] = {"classification": "classification: "}


@dataclass(frozen=True)
class Kind:
    """One kind of task.

    Attributes:
        name: the value of `kind:` in a task file.
        columns: the columns of each row: texts, a label or a score.
        trainable: whether models are trained on it; if not, its datasets are test sets.
        batches: "homogeneous" (a batch is of one dataset) or "heterogeneous" (of all datasets of the task).
        temperature: of the contrastive loss.
        metric: of the evaluation (MoTE, table 1).
        mteb_type: the task type of mteb.
        labelled: rows are a text and its label; texts of one label are positives of each other.
        binary: scores are 0 or 1.
        optional: further columns that a row may have.
        instructions: default instruction per route; empty means one route, the task's name.
    """

    name: str
    columns: tuple[str, ...]
    trainable: bool
    batches: str
    temperature: float
    metric: str
    mteb_type: str
    labelled: bool = False
    binary: bool = False
    optional: tuple[str, ...] = ()
    instructions: Mapping[str, str] = field(default_factory=dict, hash=False)


_PAIR = ("anchor", "positive")
_LABELLED = ("text", "label")
_SCORED = (*_PAIR, "score")
# Batches and temperatures: MoTE, appendix D.2. The instructions of kinds that are only measured: its map for
# tasks that no model is trained on (re-ranking as search, the others as classification).
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("retrieval", _PAIR, True, HOMOGENEOUS, 0.03, "nDCG@10", "Retrieval",
             optional=("negative",), instructions=SEARCH),
        Kind("classification", _LABELLED, True, HETEROGENEOUS, 0.03, "accuracy", "Classification",
             labelled=True),
        Kind("clustering", _LABELLED, True, HETEROGENEOUS, 0.06, "V-measure", "Clustering", labelled=True),
        Kind("pairs", _PAIR, True, HOMOGENEOUS, 0.03, "nDCG@10", "Retrieval", optional=("negative",)),
        Kind("reranking", _PAIR, False, HOMOGENEOUS, 0.03, "MAP", "Reranking",
             optional=("negative",), instructions=SEARCH),
        Kind("pair_classification", _SCORED, False, HOMOGENEOUS, 0.03, "AP", "PairClassification",
             binary=True, instructions=CLASSIFICATION),
        Kind("sts", _SCORED, False, HOMOGENEOUS, 0.03, "Spearman", "STS", instructions=CLASSIFICATION),
    )
}  # fmt: skip

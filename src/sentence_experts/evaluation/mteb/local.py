"""The test sets of a tasks folder as mteb tasks: measured by mteb's own code, without the hub.

A task is called `TASK.DATASET`. Its dataset revision is a hash of its rows, its routes and `PROTOCOL`, so
cached results are not mistaken for results of other data. The kinds of tasks:

- retrieval, pairs: every distinct anchor of the test split is a query, and its own positives are relevant.
  The documents are the distinct positives (and given negatives) of all splits: one collection, as in MS
  MARCO, because a small test split would be too easy to search. The query's own text is not an
  answer. nDCG@10.
- reranking: the same texts; the candidates of a query are its positives and its given negatives. A query
  without any given has the nearest documents by TF-IDF instead, up to `CANDIDATES` in all. MAP.
- classification: mteb's protocol. A logistic regression is fitted to 8 texts per label of the train split, 10
  times, and predicts the test split. Mean accuracy.
- clustering: mteb's current protocol, on all texts of the test split: 10 bootstrap samples, clustered by
  mini-batch k-means with as many clusters as labels. Mean V-measure. The samples are of mteb's size, 16,384:
  in small ones the copies of a text, which share a cluster, raise the figure.
- pair_classification: average precision of the similarity of pairs. sts: Spearman's correlation of the
  cosines of pairs with the scores.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict
from mteb.abstasks import (
    AbsTaskClassification,
    AbsTaskClustering,
    AbsTaskPairClassification,
    AbsTaskRetrieval,
    AbsTaskSTS,
)
from mteb.abstasks.abstask import AbsTask
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata

from sentence_experts.errors import InputError
from sentence_experts.evaluation.mteb.groups import select_tasks
from sentence_experts.models.routes.task_types import ROLES, TWO_SIDED
from sentence_experts.storage import sha256_text
from sentence_experts.tasks.dataset import TEXTS, Tasks
from sentence_experts.tasks.rows import text_id
from sentence_experts.tasks.split import SPLITS, TEST, TRAIN

logger = logging.getLogger(__name__)

PROTOCOL = "3"  # version of how tasks are made from rows
CANDIDATES = 30  # number of documents to re-rank per query
SEED = 42  # mteb's own
# Undetermined: a tasks folder does not record languages.
LANGUAGE = "und-Zyyy"


@dataclass(frozen=True)
class LocalTask:
    """The test split of one dataset of a tasks folder; `name` is the name that results are stored under."""

    folder: Tasks
    task: str
    dataset: str

    @property
    def name(self) -> str:
        """The name under which results are stored."""
        return f"{self.task}.{self.dataset}"

    @property
    def kind(self) -> str:
        """mteb's type of the task."""
        return self.folder.task_file.tasks[self.task].of.mteb_type

    @property
    def routes(self) -> dict[str, str]:
        """Key -> route of its texts, from the task file (`routes`)."""
        task = self.folder.task_file.tasks[self.task]
        sides = (task.anchor_route, task.positive_route)
        if self.kind in TWO_SIDED:
            return {f"{self.name}.{role}": route for role, route in zip(ROLES, sides, strict=True)}
        return {self.name: task.anchor_route}

    @property
    def revision(self) -> str:
        """A hash of the rows, the routes and the protocol."""
        task = self.folder.task_file.tasks[self.task]
        read = (TEXTS,) if task.of.labelled else (f"{split}.parquet" for split in SPLITS)
        files = self.folder.hashes()
        hashes = [files.get(f"{self.task}/{self.dataset}/{name}") for name in read]
        routes = (f"{key}={route}" for key, route in self.routes.items())
        return sha256_text(PROTOCOL, task.kind, *routes, *filter(None, hashes))[:16]

    def make(self) -> AbsTask:
        """Return the task, its data not yet loaded."""
        base = SHAPES[self.kind].base
        return type(base.__name__, (_Local, base), {})(self)  # type: ignore[no-any-return]

    def rows(self, split: str = TEST) -> pa.Table:
        """Return the pairs or labelled texts of a split; an empty table if it has none."""
        labelled = self.folder.task_file.tasks[self.task].of.labelled
        read = self.folder.texts if labelled else self.folder.pairs
        return read(self.task, self.dataset, split)


def local_tasks(folder: Tasks, only: Sequence[str] = ()) -> list[LocalTask]:
    """List the tasks of a folder; `only` names the tasks, datasets (`TASK.DATASET`) or types to keep.

    Raises:
        InputError: no dataset has a test split, or two have one name.
        UsageError: `only` holds an unknown name.
    """
    datasets = [(name, dataset) for name, task in folder.task_file.tasks.items() for dataset in task.datasets]
    everything = [LocalTask(folder, *names) for names in datasets]
    counts = Counter(task.name for task in everything)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise InputError(
            f"{folder.path or folder.name}: two datasets are named {twice[0]!r}, TASK.DATASET: rename a task"
        )
    tested = [task for task in everything if task.rows().num_rows]
    lacking = [task for task in everything if task not in tested]
    if without := [each.name for each in lacking if not only or {each.name, each.task} & {*only}]:
        logger.warning(f"not measured, since they have no test split: {', '.join(without)}")
    if not tested:
        raise InputError(f"{folder.path}: none of its datasets has a test split")
    return select_tasks(tested, only)


class _Local:
    """Part of a task of mteb: its metadata and data come from a tasks folder."""

    data_loaded: bool
    ignore_identical_ids = True  # equal texts have equal ids
    max_fraction_of_documents_to_embed = None  # clustering

    def __init__(self, source: LocalTask) -> None:
        self.source = source
        super().__init__(seed=SEED)  # type: ignore[call-arg]

    @property
    def metadata(self) -> TaskMetadata:
        """The known metadata of the task; the rest stays empty."""
        source = self.source
        labelled = source.folder.task_file.tasks[source.task].of.labelled
        return TaskMetadata(
            name=source.name,
            description=f"{source.task}: the test split of {source.dataset}, out of a tasks folder",
            dataset={"path": f"{source.task}/{source.dataset}", "revision": source.revision},
            type=source.kind,  # type: ignore[arg-type]
            category="t2c" if labelled else "t2t",
            eval_splits=[TEST],
            eval_langs=[LANGUAGE],
            main_score=SHAPES[source.kind].metric,
        )

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Read the rows, once."""
        if not self.data_loaded:
            self.dataset = SHAPES[self.source.kind].data(self.source)
            self.data_loaded = True


def search_data(source: LocalTask) -> dict[str, dict[str, RetrievalSplitData]]:
    """Return queries, documents, relevant documents, and the candidates of each query for re-ranking."""
    table = source.rows()
    rows = table.filter(pc.not_equal(table["anchor_id"], table["positive_id"])).to_pylist()
    queries = {row["anchor_id"]: row["anchor"] for row in rows}
    everything = pa.concat_tables([source.rows(split) for split in (TEST, *SPLITS)]).to_pylist()
    documents = {row["positive_id"]: row["positive"] for row in everything}
    documents |= {text_id(row["negative"]): row["negative"] for row in everything if row["negative"]}
    relevant: dict[str, dict[str, int]] = {query: {} for query in queries}
    negatives: dict[str, dict[str, None]] = {query: {} for query in queries}
    for row in rows:
        relevant[row["anchor_id"]][row["positive_id"]] = 1
        if row["negative"]:
            negatives[row["anchor_id"]][text_id(row["negative"])] = None
    data = RetrievalSplitData(
        corpus=_make_dataset(id=list(documents), text=list(documents.values())),
        queries=_make_dataset(id=list(queries), text=list(queries.values())),
        relevant_docs=relevant,
        top_ranked=None,
    )
    if source.kind == "Reranking":
        data["top_ranked"] = candidates(queries, documents, relevant, negatives)
    return {"default": {TEST: data}}


def candidates(
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    relevant: Mapping[str, Mapping[str, int]],
    negatives: Mapping[str, Mapping[str, None]],
) -> dict[str, list[str]]:
    """Return the ids of the documents to re-rank by query id: positives and given negatives.

    For a query without negatives, TF-IDF is the first-stage search, the same for every model. Equally near
    documents are taken in a random order (`SEED`), not in the file's.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    listed = list(documents)
    names = [listed[place] for place in np.random.default_rng(SEED).permutation(len(listed))]
    weigh = TfidfVectorizer(token_pattern=r"(?u)\S+")
    texts = weigh.fit_transform(documents[name] for name in names)
    chosen: dict[str, list[str]] = {}
    for query, text in queries.items():
        if negatives[query]:
            chosen[query] = [*{**dict.fromkeys(relevant[query]), **negatives[query]}]
            continue
        near = (texts @ weigh.transform([text]).T).toarray().ravel()
        nearest = (names[place] for place in np.argsort(-near, kind="stable"))
        first = dict.fromkeys(relevant[query])
        rest = [name for name in nearest if name not in first and name != query]
        chosen[query] = [*first, *rest[: max(0, CANDIDATES - len(first))]]
    return chosen


def classification_data(source: LocalTask) -> DatasetDict:
    """Return texts and labels of the train and test split; labels are numbered in alphabetical order.

    A label that only the test split has cannot be learned: its texts count as errors, and it is logged.
    """
    splits = {split: source.rows(split).to_pydict() for split in (TRAIN, TEST)}
    seen = {split: set(rows["label"]) for split, rows in splits.items()}
    if not seen[TRAIN]:
        raise InputError(f"{source.folder.path}: {source.name} has no rows in its train split")
    if unseen := sorted(seen[TEST] - seen[TRAIN]):
        logger.info(f"{source.name}: {len(unseen)} labels without training texts, such as {unseen[0]!r}")
        if not seen[TEST] & seen[TRAIN]:
            raise InputError(f"{source.name}: no label of its test split is in its train split")
    number = {label: place for place, label in enumerate(sorted(set().union(*seen.values())))}
    return DatasetDict({
        split: _make_dataset(text=rows["text"], label=[number[label] for label in rows["label"]])
        for split, rows in splits.items()
    })  # fmt: skip


def clustering_data(source: LocalTask) -> DatasetDict:
    """Return texts and labels of the test split; InputError if it has a single label."""
    rows = source.rows().to_pydict()
    if len(set(rows["label"])) < 2:
        raise InputError(f"{source.folder.path}: {source.name}: the test split has a single label")
    return DatasetDict({TEST: _make_dataset(sentences=rows["text"], labels=rows["label"])})


def scored_data(column: str, number: Callable[[float], float | int]) -> Callable[[LocalTask], DatasetDict]:
    """Return a reader of scored pairs; `column` is the name of the score, `number` its type."""

    def data(source: LocalTask) -> DatasetDict:
        rows = source.rows().to_pydict()
        scores = [number(score) for score in rows["score"]]
        if len(set(scores)) < 2:
            raise InputError(f"{source.folder.path}: {source.name}: all pairs have the same score")
        pairs = {"sentence1": rows["anchor"], "sentence2": rows["positive"], column: scores}
        return DatasetDict({TEST: _make_dataset(**pairs)})

    return data


class Shape(NamedTuple):
    """The measurement of a type: mteb's class, the rows, and mteb's name of the metric (MoTE, table 1)."""

    base: type[AbsTask]
    data: Callable[[LocalTask], Any]
    metric: str


SHAPES: dict[str, Shape] = {
    "Retrieval": Shape(AbsTaskRetrieval, search_data, "ndcg_at_10"),
    "Reranking": Shape(AbsTaskRetrieval, search_data, "map_at_1000"),
    "Classification": Shape(AbsTaskClassification, classification_data, "accuracy"),
    "Clustering": Shape(AbsTaskClustering, clustering_data, "v_measure"),
    "PairClassification": Shape(AbsTaskPairClassification, scored_data("labels", int), "max_ap"),
    "STS": Shape(AbsTaskSTS, scored_data("score", float), "cosine_spearman"),
}


def _make_dataset(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict(columns)

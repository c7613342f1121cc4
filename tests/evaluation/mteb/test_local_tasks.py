"""Local tasks through mteb's own evaluation, against figures computed from the vectors directly."""

from __future__ import annotations

import random

import mteb
import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, v_measure_score

from helpers.small_tasks import write_rows, write_task_file
from sentence_experts.encoding.encoder import BatchEncoder, cosines
from sentence_experts.errors import InputError, UsageError
from sentence_experts.evaluation.mteb.adapter import TaskEncoder
from sentence_experts.evaluation.mteb.local import CANDIDATES, LocalTask, candidates, local_tasks
from sentence_experts.evaluation.mteb.routes import TaskRoutes
from sentence_experts.models.loading import load
from sentence_experts.tasks.compile import compile_tasks
from sentence_experts.tasks.dataset import Tasks


@pytest.fixture(scope="module")
def tasks(tasks_folder) -> dict[str, LocalTask]:
    return {task.name: task for task in local_tasks(Tasks.open(tasks_folder))}


@pytest.fixture(scope="module")
def encoder(task_model) -> BatchEncoder:
    return BatchEncoder(load(task_model, device="cpu"))


class Watched(BatchEncoder):
    """Remembers which routes the texts took."""

    def __init__(self, encoder: BatchEncoder) -> None:
        super().__init__(encoder.model)
        self.taken: list[str | None] = []

    def encode(self, texts, route=None, normalize=False, advance=None):
        self.taken.append(route)
        return super().encode(texts, route, normalize)


def score(encoder: BatchEncoder, source: LocalTask) -> tuple[float, list[str | None]]:
    watched = Watched(encoder)
    model = TaskEncoder(watched, TaskRoutes.of(watched, own=source.routes))
    found = mteb.evaluate(model, source.make(), cache=None, co2_tracker=False, show_progress_bar=False)
    return found.task_results[0].get_score(), watched.taken


def pair_cosines(encoder: BatchEncoder, source: LocalTask, route: str) -> tuple[np.ndarray, np.ndarray]:
    table = source.rows()
    sides = [encoder.encode(table[side].to_pylist(), route) for side in ("anchor", "positive")]
    return cosines(*sides), table["score"].to_numpy()


def test_every_dataset_with_a_test_split_is_a_task(tasks):
    assert {name: task.kind for name, task in tasks.items()} == {
        "retrieval.papers": "Retrieval",
        "classification.topics": "Classification",
        "clustering.topics": "Clustering",
        "reranking.papers": "Reranking",
        "same.papers": "PairClassification",
        "sts.papers": "STS",
    }


def _of_sts(**tasks: str) -> Tasks:
    rows = [{"anchor": f"a {n}", "positive": f"b {n}", "score": n} for n in range(9)]
    sts = {"kind": "sts", "instructions": {"similar": "similar: "}}
    return compile_tasks(
        {"tasks": {name: {**sts, "datasets": {dataset: rows}} for name, dataset in tasks.items()}}
    )


def test_names_with_dots_are_told_apart():
    versions = _of_sts(**{"nq": "dev", "nq.v2": "dev"})
    for name in ("nq", "nq.v2", "nq.dev", "nq.v2.dev"):
        (found,) = local_tasks(versions, only=[name])
        assert found.task == name.removesuffix(".dev")
    with pytest.raises(InputError, match=r"two datasets are named 'a\.b\.c'"):
        local_tasks(_of_sts(**{"a": "b.c", "a.b": "c"}))


def test_sts_is_spearman_of_the_cosines(encoder, tasks):
    found, taken = score(encoder, tasks["sts.papers"])
    near, scores = pair_cosines(encoder, tasks["sts.papers"], "classification")
    assert found == pytest.approx(spearmanr(near, scores).statistic, abs=1e-6)
    assert set(taken) == {"classification"}


def test_pair_classification_is_average_precision(encoder, tasks):
    found, taken = score(encoder, tasks["same.papers"])
    near, scores = pair_cosines(encoder, tasks["same.papers"], "classification")
    # mteb's main figure is the best of several distances; the cosine's is one of them
    assert found >= average_precision_score(scores, near) - 1e-6
    assert set(taken) == {"classification"}


def test_classification_is_mtebs_logistic_regression(encoder, tasks):
    source = tasks["classification.topics"]
    found, taken = score(encoder, source)
    train, test = (source.rows(split).to_pydict() for split in ("train", "test"))
    vectors, tested = (encoder.encode(part["text"], "classification") for part in (train, test))
    order, right = list(range(len(train["label"]))), []
    for _ in range(10):
        np.random.RandomState(42).shuffle(order)
        chosen = [
            row
            for place, row in enumerate(order)
            if [train["label"][other] for other in order[:place]].count(train["label"][row]) < 8
        ]
        learned = LogisticRegression(max_iter=100, random_state=42).fit(
            vectors[chosen], [train["label"][row] for row in chosen]
        )
        right.append(learned.score(tested, test["label"]))
    assert found == pytest.approx(np.mean(right), abs=1e-6)
    assert set(taken) == {"classification"}


def test_retrieval_is_ndcg_of_test_queries_among_the_documents_of_all_splits(encoder, tasks):
    source = tasks["retrieval.papers"]
    found, taken = score(encoder, source)
    table = source.rows()
    others = [
        text
        for split in ("train", "validation")
        for text in source.folder.pairs("retrieval", "papers", split)["positive"].to_pylist()
    ]
    assert others
    queries = encoder.encode(table["anchor"].to_pylist(), "query")
    documents = encoder.encode([*table["positive"].to_pylist(), *others], "document")
    near = queries @ documents.T / np.linalg.norm(documents, axis=1)
    ranks = (near > np.diag(near)[:, None]).sum(axis=1)
    assert found == pytest.approx(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).mean(), abs=1e-4)
    assert taken == ["query", "document"]


def test_clustering_and_reranking_take_their_own_routes(encoder, tasks):
    found, taken = score(encoder, tasks["clustering.topics"])
    assert (0 <= found <= 1, set(taken)) == (True, {"clustering"})
    assert score(encoder, tasks["clustering.topics"])[0] == found
    found, taken = score(encoder, tasks["reranking.papers"])
    assert (0 < found <= 1, taken) == (True, ["query", "document"])


def test_a_small_set_is_not_clustered_better_by_copies_of_its_texts(task_model, tmp_path):
    """Labels without a meaning: what k-means reaches by chance, which copies within a sample would raise."""
    draw = random.Random(0)
    words = [f"{first}{second}" for first in "bdfgklmn" for second in "aeiou"]
    rows = [{"text": " ".join(draw.choices(words, k=6)), "label": f"{number % 12}"} for number in range(84)]
    write_rows(tmp_path / "one.jsonl", rows)
    content = {"clustering": {"kind": "clustering", "datasets": {"one": {"files": {"test": "one.jsonl"}}}}}
    (task,) = local_tasks(compile_tasks(write_task_file(tmp_path, content), out=tmp_path / "tasks"))
    encoder = BatchEncoder(load(task_model, device="cpu"))
    vectors = encoder.encode([row["text"] for row in rows], "clustering")
    labels = [row["label"] for row in rows]
    by_chance = [
        v_measure_score(labels, MiniBatchKMeans(12, n_init=1, random_state=seed).fit_predict(vectors))
        for seed in range(20)
    ]
    assert score(encoder, task)[0] == pytest.approx(np.mean(by_chance), abs=0.06)


def test_candidates_are_positives_and_given_negatives_or_nearest_by_words():
    documents = {f"d{n}": f"word{n % 7} other{n}" for n in range(60)}
    relevant = {"q": {"d3": 1}, "given": {"d3": 1}}
    queries = dict.fromkeys(relevant, "word3 word3")
    found = candidates(queries, documents, relevant, {"q": {}, "given": {"d5": None}})
    assert found["given"] == ["d3", "d5"]
    assert found["q"][0] == "d3"
    assert len(found["q"]) == len(set(found["q"])) == CANDIDATES
    assert set(found["q"][1:9]) == {f"d{n}" for n in range(10, 60, 7)}


def test_query_is_not_its_own_answer(encoder, tasks):
    data = tasks["retrieval.papers"].make()
    data.load_data()
    split = data.dataset["default"]["test"]
    assert set(split["relevant_docs"]) == set(split["queries"]["id"])
    assert data.ignore_identical_ids


def test_task_revision_is_a_hash_of_rows_and_routes(tasks, tasks_folder):
    revisions = {task.make().metadata.revision for task in tasks.values()}
    assert len(revisions) == len(tasks)
    again = local_tasks(Tasks.open(tasks_folder), ["sts.papers"])
    assert again[0].revision == tasks["sts.papers"].revision


def test_a_dataset_without_a_test_split_is_told(caplog):
    rows = [{"anchor": f"question {n}", "positive": f"answer {n}", "split": "train"} for n in range(20)]
    datasets = {"a": [*rows[1:], rows[0] | {"split": "test"}], "b": [*rows[1:], rows[0] | {"split": "dev"}]}
    tasks = compile_tasks({"qa": {"kind": "retrieval", "datasets": datasets}})
    caplog.clear()
    assert [task.name for task in local_tasks(tasks)] == ["qa.a"]
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "not measured, since they have no test split: qa.b" in caplog.text


def test_only_selects_tasks_datasets_and_types(tasks_folder):
    folder = Tasks.open(tasks_folder)
    assert [task.name for task in local_tasks(folder, ["sts", "Clustering"])] == [
        "clustering.topics",
        "sts.papers",
    ]
    with pytest.raises(UsageError, match="`only` Sts: no such task or type here; there are Retrieval"):
        local_tasks(folder, ["Sts"])


def test_data_without_information_is_an_error(tmp_path):
    (tmp_path / "one.jsonl").write_text(
        "\n".join(f'{{"text": "rice {n}", "label": "a"}}' for n in range(4)) + "\n"
    )
    (tmp_path / "tasks.yaml").write_text(
        "tasks: {clustering: {kind: clustering, datasets: {one: {files: {test: one.jsonl}}}}}"
    )
    compile_tasks(tmp_path / "tasks.yaml", out=tmp_path / "tasks")
    (task,) = local_tasks(Tasks.open(tmp_path / "tasks"))
    with pytest.raises(InputError, match=r"clustering.one: the test split has a single label"):
        task.make().load_data()

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from helpers.fresh_process import run_fresh
from helpers.samples import write_corpus
from sentence_experts.encoding.chunks import Vectors
from sentence_experts.retrieval import approximate
from sentence_experts.retrieval.approximate import LanceVectors
from sentence_experts.retrieval.exact import nearest
from sentence_experts.retrieval.index import route_vectors
from sentence_experts.retrieval.vectors import RouteVectors

pytest.importorskip("lancedb")


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    dice = np.random.default_rng(0)
    centres = dice.normal(size=(30, 16))
    rows = centres[dice.integers(0, 30, 2000)] + 0.5 * dice.normal(size=(2000, 16))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def near(tmp_path_factory, vectors) -> LanceVectors:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(approximate, "LARGE", 500)
        return LanceVectors.open(tmp_path_factory.mktemp("index"), vectors)


def recall(found, truth) -> float:
    pairs = zip(found, truth, strict=True)
    return float(
        np.mean([len(set(ours.tolist()) & set(theirs.tolist())) / 10 for (ours, _), (theirs, _) in pairs])
    )


@pytest.mark.parametrize("share", [None, 0.5, 0.1, 0.01])
def test_nearly_all_neighbours_are_found_and_scored_exactly(vectors, near, monkeypatch, share):
    monkeypatch.setattr(approximate, "SELECTIVE", 50)
    places = None if share is None else np.flatnonzero(np.random.default_rng(1).random(2000) < share)
    queries = vectors[::100] * 3
    found, truth = near.search(queries, 10, places), nearest(vectors, queries, 10, places)
    assert recall(found, truth) >= 0.97
    for query, (rows, scores) in zip(queries / 3, found, strict=True):
        assert scores == pytest.approx(vectors[rows] @ query, abs=1e-5)
        assert (np.diff(scores) <= 0).all()
        assert places is None or np.isin(rows, places).all()


def test_small_corpora_and_missing_lancedb_are_searched_exactly(tmp_path, vectors, monkeypatch, caplog):
    assert LanceVectors.open(tmp_path, vectors) is None
    monkeypatch.setattr(approximate, "LARGE", 500)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert LanceVectors.open(tmp_path, vectors) is None
    assert 'pip install "sentence-experts[index]"' in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_table_that_cannot_be_made_or_read_leaves_search_exact(tmp_path, vectors, monkeypatch, caplog):
    monkeypatch.setattr(approximate, "LARGE", 500)

    def read_only(*arguments):
        raise PermissionError("read-only")

    monkeypatch.setattr(approximate, "build", read_only)
    assert LanceVectors.open(tmp_path, vectors) is None
    assert caplog.text.count("all papers are compared instead") == 1
    (tmp_path / approximate.FOLDER).mkdir()  # of an interrupted copy
    assert LanceVectors.open(tmp_path, vectors) is None
    assert caplog.text.count("all papers are compared instead") == 2


def test_rows_of_the_corpus_are_returned(vectors, near):
    index = RouteVectors(vectors, np.arange(2000) * 2 + 1, near)
    (places, _), (rows, _) = near.search(vectors[:1], 5)[0], index.search(vectors[:1], 5)[0]
    assert rows.tolist() == (2 * places + 1).tolist()
    odd = np.zeros(4002, bool)
    odd[101::2] = True
    assert (index.search(vectors[:1], 5, odd)[0][0] >= 101).all()


@pytest.mark.parametrize(("top_k", "share"), [(1, None), (10, None), (10, 0.5), (300, None)])
def test_enough_candidates_are_compared_exactly(vectors, near, monkeypatch, top_k, share):
    compared = []

    class Table:
        """Notes how many candidates LanceDB gives."""

        def __init__(self, query):
            self.query = query

        def __getattr__(self, name):
            def call(*given, **options):
                query = getattr(self.query, name)(*given, **options)
                if name == "to_arrow":
                    compared.append(len(query))
                    return query
                self.query = query
                return self

            return call

    monkeypatch.setattr(approximate, "SELECTIVE", 50)
    monkeypatch.setattr(near, "_table", Table(near._table))
    places = None if share is None else np.arange(0, 2000, round(1 / share))
    near.search(vectors[:1], top_k, places)
    assert min(compared) >= max(500, 5 * top_k)


def test_of_several_passages_the_best_one_counts(vectors, near):
    papers, spans = np.arange(2000) // 8, np.zeros((2000, 2), np.int64)
    index, exact = (RouteVectors(vectors, papers, each, spans) for each in (near, None))
    allowed = papers[::8] % 2 == 0
    for choice in (None, allowed):
        found, truth = (each.search(vectors[::100] * 3, 10, choice) for each in (index, exact))
        assert recall(found, truth) >= 0.97
        for (rows, scores), (places, _) in zip(
            found, index.nearest(vectors[::100] * 3, 10, choice), strict=True
        ):
            assert len(set(rows.tolist())) == 10
            assert papers[places].tolist() == rows.tolist()
            assert (np.diff(scores) <= 0).all()
            assert choice is None or choice[rows].all()


def test_a_large_corpus_is_indexed_when_it_is_first_opened(tmp_path, plain, monkeypatch):
    built = []
    monkeypatch.setattr(approximate, "LARGE", 2)
    monkeypatch.setattr(approximate, "build", lambda place, rows: built.append(len(rows)) or place.mkdir())
    monkeypatch.setattr(
        "lancedb.connect", lambda place: type("Db", (), {"open_table": lambda self, name: name})()
    )
    for _ in range(2):
        assert route_vectors(plain, write_corpus(tmp_path)).near is not None
    assert built == [4]


OPENED = """
import sys
import numpy as np
from pathlib import Path
from sentence_experts.compat.imports import allow_deferred_imports
from sentence_experts.retrieval import approximate

allow_deferred_imports()
approximate.LARGE = 100
vectors = np.eye(256, 16, dtype=np.float32) + np.linspace(0, 0.1, 256 * 16, dtype=np.float32).reshape(256, 16)
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
near = approximate.LanceVectors.open(Path(sys.argv[1]), vectors)
assert near.search(vectors[3:4], 1)[0][0].tolist() == [3]
print("lance_namespace_urllib3_client.api.table_api" in sys.modules)
"""


def test_a_command_opens_the_table_without_clients_of_remote_services(tmp_path) -> None:
    done = run_fresh(OPENED, tmp_path)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from helpers.ranking import nearest
from sentence_experts.retrieval import approximate, vectors
from sentence_experts.retrieval.approximate import LanceVectors
from sentence_experts.retrieval.vectors import RouteVectors

pytest.importorskip("lancedb")


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> RouteVectors:
    dice = np.random.default_rng(0)
    centres = dice.normal(size=(30, 16))
    rows = centres[dice.integers(0, 30, 2000)] + 0.5 * dice.normal(size=(2000, 16))
    matrix = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(approximate, "LARGE", 500)
        near = LanceVectors.open(tmp_path_factory.mktemp("index"), matrix)
    return RouteVectors(matrix, np.arange(2000) * 2 + 1, near)


@pytest.mark.parametrize("share", [None, 0.5, 0.1, 0.01])
@pytest.mark.parametrize("several", [False, True])
def test_nearly_all_neighbours_are_found_and_scored_exactly(large, monkeypatch, share, several):
    monkeypatch.setattr(vectors, "SELECTIVE", 50)
    if several:  # eight passages of each paper
        large = replace(large, rows=np.arange(2000) // 8, spans=np.zeros((2000, 2), np.int64))
    passing = None if share is None else np.random.default_rng(1).random(4001) < share
    common = []
    for query in large.vectors[::100]:
        rows, scores = nearest(large, query, 10, passing)
        truth, cosines = nearest(replace(large, near=None), query, 10, passing)
        common.append(len({*rows} & {*truth}) / len(truth))
        assert len(rows) == len(truth)
        assert passing is None or passing[rows].all()
        assert scores == sorted(scores, reverse=True)
        by_row = dict(zip(truth, cosines, strict=True))
        assert all(
            score == pytest.approx(by_row.get(row, score), abs=1e-6)
            for row, score in zip(rows, scores, strict=True)
        )
    assert np.mean(common) >= 0.97


@pytest.mark.parametrize(("top_k", "share"), [(1, None), (10, None), (10, 0.5), (300, None)])
def test_enough_candidates_are_compared_exactly(large, monkeypatch, top_k, share):
    compared = []
    real = LanceVectors.candidates
    monkeypatch.setattr(vectors, "SELECTIVE", 50)
    monkeypatch.setattr(
        LanceVectors, "candidates", lambda *a: (found := real(*a), compared.append(len(found)))[0]
    )
    nearest(large, large.vectors[0], top_k, None if share is None else np.arange(4001) % 4 < 2)
    assert min(compared) >= max(500, 5 * top_k)


def test_small_corpora_and_missing_lancedb_are_searched_exactly(tmp_path, large, monkeypatch, caplog):
    assert LanceVectors.open(tmp_path, large.vectors) is None
    monkeypatch.setattr(approximate, "LARGE", 500)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert LanceVectors.open(tmp_path, large.vectors) is None
    assert 'pip install "sentence-experts[index]"' in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_table_that_cannot_be_made_or_read_leaves_search_exact(tmp_path, large, monkeypatch, caplog):
    monkeypatch.setattr(approximate, "LARGE", 500)

    def read_only(*arguments):
        raise PermissionError("read-only")

    monkeypatch.setattr(approximate, "build", read_only)
    assert LanceVectors.open(tmp_path, large.vectors) is None
    (tmp_path / approximate.FOLDER).mkdir()  # of an interrupted copy
    assert LanceVectors.open(tmp_path, large.vectors) is None
    assert caplog.text.count("all papers are compared instead") == 2

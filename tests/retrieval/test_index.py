from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sentence_transformers.util import semantic_search

from helpers.ranking import nearest
from helpers.samples import PAPERS, write_corpus
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.errors import InputError, UsageError
from sentence_experts.retrieval import index as index_module
from sentence_experts.retrieval.index import route_vectors
from sentence_experts.retrieval.search import search
from sentence_experts.retrieval.texts import texts_of
from sentence_experts.retrieval.vectors import RouteVectors
from sentence_experts.storage import write_json

UNIT = "title+abstract"


def test_neighbours_are_those_of_sentence_transformers_exact_search():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(500, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = generator.normal(size=(3, 16)).astype(np.float32)
    index = RouteVectors(vectors, np.arange(500) + 1000)
    for query, theirs in zip(queries, semantic_search(queries, vectors, top_k=7), strict=True):
        rows, scores = nearest(index, query, 7)
        assert [row - 1000 for row in rows] == [hit["corpus_id"] for hit in theirs]
        assert scores == pytest.approx([hit["score"] for hit in theirs], abs=1e-5)


def test_ties_are_in_corpus_order():
    same = RouteVectors(np.ones((5, 1), np.float32), np.array([1, 3, 5, 7, 9]))
    query = np.ones(1, np.float32)
    assert nearest(same, query, 3)[0] == [1, 3, 5]
    assert len(nearest(same, query, 100)[0]) == 5
    assert nearest(same, query, 3, np.isin(np.arange(10), [5, 9]))[0] == [5, 9]
    with pytest.raises(UsageError, match="at least 1"):
        nearest(same, query, 0)


def test_text_of_a_paper_finds_it(tmp_path, plain):
    found = search(plain, write_corpus(tmp_path), ["Sleep and memory\nRats dreamt.", "Wheat rust"], top_k=2)
    assert found.queries == ["Sleep and memory\nRats dreamt.", "Wheat rust"]
    best = found.papers[0][0]
    assert best["score"] == pytest.approx(1, abs=1e-5)
    assert (best["rank"], best["paper_id"], best["year"], best["retracted"]) == (1, "doi:10.1/b", 2014, True)


@pytest.mark.parametrize(
    ("unit", "rows"), [("title+abstract", [0, 1, 2, 4]), ("abstract", [0, 1, 4]), ("title", [0, 1, 2, 4])]
)
def test_papers_without_the_text_are_left_out(tmp_path, plain, unit, rows):
    assert route_vectors(plain, write_corpus(tmp_path), unit=unit).rows.tolist() == rows


def test_vectors_are_used_again_until_corpus_route_or_unit_change(tmp_path, experts, monkeypatch):
    calls = []
    real = experts.encode
    monkeypatch.setattr(experts, "encode", lambda *a, **k: calls.append(1) or real(*a, **k))
    corpus = write_corpus(tmp_path)
    first = route_vectors(experts, corpus, "crops").vectors
    route_vectors(experts, corpus, "crops")
    assert len(calls) == 1
    route_vectors(experts, corpus, "crops", "title")
    other = route_vectors(experts, corpus, "neuro").vectors
    assert len(calls) == 3
    assert np.abs(first - other).max() > 1e-4
    assert np.linalg.norm(first, axis=1) == pytest.approx(1)
    assert sum(path.is_dir() for path in (tmp_path / ".vectors").iterdir()) == 3


def test_only_new_texts_are_encoded_when_the_corpus_changes(tmp_path, experts, monkeypatch):
    first = route_vectors(experts, write_corpus(tmp_path, PAPERS[1:3]), "crops")
    before, calls = np.array(first.vectors), []
    real = experts.encode
    monkeypatch.setattr(experts, "encode", lambda texts, *a, **k: calls.extend(texts) or real(texts, *a, **k))
    grown = route_vectors(experts, write_corpus(tmp_path), "crops")
    assert len(calls) == len(grown.rows) - 2
    assert not set(calls) & {text for _, text in texts_of(write_corpus(tmp_path / "b", PAPERS[1:3]), UNIT)}
    assert np.array_equal(grown.vectors[[1, 2]], before)
    whole = route_vectors(experts, write_corpus(tmp_path / "whole"), "crops").vectors
    assert grown.vectors == pytest.approx(np.array(whole), abs=1e-6)
    calls.clear()
    shrunk = route_vectors(experts, write_corpus(tmp_path, PAPERS[:1]), "crops")
    assert not calls
    assert np.array_equal(shrunk.vectors, grown.vectors[:1])
    assert len(list((tmp_path / ".vectors").iterdir())) == 1


@pytest.mark.parametrize("titles", [("a a b", "c d"), ("a b b a", "c b d d"), ("a a b", "a a b c c d")])
def test_vectors_of_a_changed_corpus_are_those_of_its_texts(tmp_path, plain, titles):
    """Papers may share a text, in the corpus as it was and as it is."""
    for each in titles:
        papers = [(str(number), title * 3, None, None, False) for number, title in enumerate(each.split())]
        changed = route_vectors(plain, write_corpus(tmp_path, papers), unit="title").vectors
    fresh = route_vectors(plain, write_corpus(tmp_path / "fresh", papers), unit="title").vectors
    assert changed == pytest.approx(np.array(fresh), abs=1e-6)


def test_interrupted_index_resumes_to_same_bytes(tmp_path, plain, monkeypatch):
    monkeypatch.setattr(index_module, "CHUNK_SIZE", 2)
    whole = route_vectors(plain, write_corpus(tmp_path / "whole"))
    corpus = write_corpus(tmp_path / "part")
    real, calls = plain.encode, []

    def fails_second(*args, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(plain, "encode", fails_second)
    with pytest.raises(KeyboardInterrupt):
        route_vectors(plain, corpus)
    again = route_vectors(plain, corpus)
    assert len(calls) == 3
    assert np.array_equal(whole.vectors, again.vectors)
    assert np.array_equal(whole.rows, again.rows)
    assert len(list((tmp_path / "part" / ".vectors").iterdir())) == 1


def test_vectors_of_a_newer_version_are_refused_by_name(tmp_path, plain):
    corpus = write_corpus(tmp_path)
    route_vectors(plain, corpus)
    (index,) = (tmp_path / ".vectors").glob("*/made_from.json")
    noted = json.loads(index.read_text())
    write_json(index, noted | {"format_version": noted["format_version"] + 1})
    with pytest.raises(InputError, match=r"made_from\.json: written by a newer sentence-experts"):
        route_vectors(plain, corpus)


def test_result_is_a_table_and_reads_as_a_list(tmp_path, plain):
    write_corpus(tmp_path)
    found = search(plain, tmp_path, "Wheat rust", top_k=2)
    frame = found.to_pandas()
    empty = replace(found, papers=[[] for _ in found.queries]).to_pandas()
    assert (len(empty), sorted(empty.columns)) == (0, sorted(frame.columns))
    assert frame["query"].tolist() == ["Wheat rust"] * 2
    assert frame["rank"].tolist() == [1, 2]
    assert repr(found).splitlines()[0] == "Wheat rust"
    assert dict(found) == {"Wheat rust": found.papers[0]}
    with pytest.raises(UsageError, match="a query is empty"):
        search(plain, tmp_path, ["Wheat rust", " "])


def test_table_of_papers_is_searched_like_a_corpus(tmp_path, plain):
    expected = search(plain, write_corpus(tmp_path), "Wheat rust", top_k=2).papers[0]
    frame = CorpusFolder.open(tmp_path).to_pandas()
    found = search(plain, frame, "Wheat rust", top_k=2).papers[0]
    assert found == [{**each, "kind": "article"} for each in expected]  # which this corpus does not have


def _truncated(folder):
    data = (folder / "vectors.npy").read_bytes()
    (folder / "vectors.npy").write_bytes(data[: len(data) // 2])


def _of_other_papers(folder):
    np.save(folder / "rows.npy", np.load(folder / "rows.npy")[::-1])


def _of_another_model(folder):
    file = folder / "made_from.json"
    file.write_text(file.read_text().replace('"fingerprint": "', '"fingerprint": "0', 1))


def _without_rows(folder):
    (folder / "rows.npy").unlink()


@pytest.mark.parametrize(
    "damage",
    [_truncated, _of_other_papers, _of_another_model, _without_rows],
)
def test_vectors_that_are_not_as_they_were_written_are_made_again(tmp_path, plain, caplog, damage):
    corpus = write_corpus(tmp_path)
    first = search(plain, corpus, "Wheat rust").to_pandas()
    (folder,) = (file.parent for file in tmp_path.rglob("made_from.json"))
    damage(folder)
    with caplog.at_level("WARNING"):
        again = search(plain, corpus, "Wheat rust").to_pandas()
    assert again.equals(first)
    assert again["score"].max() <= 1.00001
    assert caplog.text.count("the corpus is encoded again") == 1
    assert str(folder) in caplog.text
    caplog.clear()
    search(plain, corpus, "Wheat rust")
    assert not caplog.text

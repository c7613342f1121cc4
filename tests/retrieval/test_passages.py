from __future__ import annotations

import re
import shutil
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.ranking import nearest
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.corpus.importing import import_corpus
from sentence_experts.errors import UsageError
from sentence_experts.retrieval import texts as texts_module
from sentence_experts.retrieval.build import build_index
from sentence_experts.retrieval.index import route_vectors
from sentence_experts.retrieval.search import search
from sentence_experts.retrieval.texts import PASSAGES, PaperTexts, texts_of, window_size, windows
from sentence_experts.retrieval.vectors import RouteVectors

WORDS = ["rice", "root", "soil", "rain", "leaf", "rust", "grain", "yield", "field", "maize", "sleep", "axon"]


def body(seed: int, words: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


ROWS = [
    {"id": "10.1000/a", "title": "Rice", "abstract": "Roots.", "year": 2001, "full_text": body(0, 90)},
    {"id": "10.1000/b", "title": "Sleep", "abstract": "Voles.", "year": 2002, "full_text": body(1, 60)},
    {"id": "10.1000/c", "title": "Short", "abstract": "All of it.", "year": 2003, "full_text": ""},
    {"id": "10.1000/d", "title": "Long abstract", "abstract": body(2, 50), "year": 2004, "full_text": None},
]


@pytest.fixture(autouse=True)
def short_windows(monkeypatch) -> None:
    """Cut texts as for a model that reads 20 tokens."""
    monkeypatch.setattr(texts_module, "window_size", lambda encoder, route: 20)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    return import_corpus(out=tmp_path_factory.mktemp("passages") / "corpus", papers=ROWS).path


@pytest.fixture
def corpus(imported, tmp_path):
    """A copy, for indexes of its own."""
    return CorpusFolder.open(shutil.copytree(imported, tmp_path / "corpus"))


@given(st.lists(st.text("ab", min_size=1, max_size=7), max_size=40), st.integers(2, 9), st.data())
def test_windows_cover_the_text_and_overlap(words: list[str], size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size // 2))
    text = " ".join(words)
    offsets = [
        (m.start() + at, m.start() + at + 1) for m in re.finditer(r"\w+", text) for at in range(len(m[0]))
    ]
    found = list(windows(text, offsets, size, overlap))
    inside = [[n for n, (a, b) in enumerate(offsets) if start <= a and b <= end] for start, end in found]
    assert sorted({token for each in inside for token in each}) == list(range(len(offsets)))
    assert all(len(each) <= size for each in inside)
    for one, other in pairwise(inside):
        assert one[0] < other[0]
        assert len(set(one) & set(other)) >= overlap
    if all(len(word) <= size // 4 for word in words):
        cut = [text[a - 1 : a] + text[b : b + 1] for a, b in found]
        assert not re.search(r"\w", "".join(cut)), "a word is cut"


def test_the_best_passage_of_each_paper_counts() -> None:
    dice = np.random.default_rng(0)
    vectors = dice.normal(size=(60, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    papers = np.sort(dice.integers(0, 12, 60))
    index = RouteVectors(vectors, papers, spans=np.zeros((60, 2), np.int64))
    query = vectors[:1] + vectors[30:31]
    cosines = vectors @ (query[0] / np.linalg.norm(query))
    for allowed in (None, np.arange(12) % 3 > 0):
        best = {p: cosines[papers == p].max() for p in set(papers.tolist()) if allowed is None or allowed[p]}
        rows, scores = nearest(index, query[0], 5, allowed)
        assert rows == sorted(best, key=best.get, reverse=True)[:5]
        assert scores == pytest.approx([best[row] for row in rows], abs=1e-6)
    assert index.papers.tolist() == sorted(set(papers.tolist()))
    assert index.scores(query[0]) == pytest.approx(
        [cosines[papers == p].max() for p in index.papers], abs=1e-6
    )
    places = index.best_places(query[0], [3, 99])
    assert (papers[places[0]], places[1]) == (3, -1)
    assert len(nearest(index, query[0], 100)[0]) == len(index.papers)


def test_a_passage_late_in_a_text_is_found_and_shown(corpus, plain) -> None:
    build_index(plain, corpus, passages=True)
    vectors, texts = route_vectors(plain, corpus, unit=PASSAGES), dict(texts_of(corpus, PASSAGES))
    assert vectors.rows.tolist().count(0) > 4
    assert vectors.rows.tolist().count(2) == 1, "what fits into one window is not cut"
    assert vectors.rows.tolist().count(3) > 1, "an abstract of many tokens is cut too"
    place = int(np.flatnonzero(vectors.rows == 1)[-2])
    passage = texts[1][slice(*vectors.spans[place])]
    found = search(plain, corpus, passage, passages=True, top_k=9).papers[0]
    assert found[0]["paper_id"] == "doi:10.1000/b"
    assert (found[0]["passage"], found[0]["score"]) == (passage, pytest.approx(1, abs=1e-5))
    assert found[0]["sentence"] == passage
    assert sorted(each["paper_id"][-1] for each in found) == list("abcd"), "each paper stands there once"
    assert all(each["passage"] in texts["abcd".index(each["paper_id"][-1])] for each in found)


@pytest.mark.parametrize(
    "settings", [{"hybrid": True}, {"year": "2002.."}, {"like": ["10.1000/a"]}, {"sentences": False}]
)
def test_passages_go_with_every_kind_of_search(corpus, plain, settings) -> None:
    build_index(plain, corpus, passages=True)
    query = None if "like" in settings else "rice sleep"
    papers = search(plain, corpus, query, passages=True, **settings).papers[0]
    ids = [each["paper_id"][-1] for each in papers]
    assert len(ids) == len(set(ids)) == (3 if {"like", "year"} & set(settings) else 4)
    assert "a" not in ids or not {"like", "year"} & set(settings)
    assert all(each["passage"] for each in papers)


def test_only_new_papers_are_encoded(corpus, tmp_path, plain, monkeypatch) -> None:
    build_index(plain, corpus, passages=True)
    before = route_vectors(plain, corpus, unit=PASSAGES)
    texts, real = [], plain.encode
    monkeypatch.setattr(plain, "encode", lambda t, *a, **k: texts.extend(t) or real(t, *a, **k))
    more = [*ROWS, {"id": "10.1000/aa", "title": "New", "abstract": "", "full_text": "barley " * 40}]
    grown = import_corpus(out=corpus.path, papers=more, overwrite=True)
    after = route_vectors(plain, grown, unit=PASSAGES)
    assert len(texts) > 1
    assert all("barley" in text for text in texts)
    old = after.rows != 1
    assert np.array_equal(after.vectors[old], before.vectors)
    assert np.array_equal(after.spans[old], before.spans)


def test_full_texts_that_come_later_are_encoded(tmp_path, plain, caplog) -> None:
    bare = [{name: value for name, value in row.items() if name != "full_text"} for row in ROWS]
    corpus = import_corpus(out=tmp_path / "corpus", papers=bare)
    caplog.set_level("INFO")
    few = len(route_vectors(plain, corpus, unit=PASSAGES).rows)
    assert caplog.text.count("has no full texts") == 1
    corpus = import_corpus(out=tmp_path / "corpus", papers=ROWS, overwrite=True)
    assert len(route_vectors(plain, corpus, unit=PASSAGES).rows) > few
    assert "title+abstract" not in {part["unit"] for part in build_index(plain, corpus, passages=True).parts}


def test_windows_are_as_long_as_the_model_reads(plain, experts) -> None:
    most = plain.model.max_seq_length
    assert window_size(plain, None) == most - 2
    assert window_size(experts, "crops") == most - 2, "[CROPS] stands in the place of [CLS]"
    with pytest.raises(UsageError, match="leave out `unit`"):
        PaperTexts.of(None, passages=True, unit="title")

"""Routes with heads: one vector per text is stored, and every route is computed from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sentence_experts
from helpers.samples import write_corpus
from helpers.searching import find_papers
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import RouteError
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.loading import load
from sentence_experts.models.surgery.add_drop_routes import with_heads
from sentence_experts.models.surgery.extend import extend
from sentence_experts.retrieval import index as index_module
from sentence_experts.retrieval import vectors as vectors_module
from sentence_experts.retrieval.build import CorpusIndex, build_index
from sentence_experts.retrieval.head_cosines import Head
from sentence_experts.retrieval.index import route_vectors
from sentence_experts.retrieval.search import search
from sentence_experts.retrieval.searcher import Searcher
from sentence_experts.retrieval.vectors import scores_of
from sentence_experts.storage import write_npy

WIDTH = 32
NAMES = ("use", "works-with", "form")


def draw_heads(*names: str) -> dict[str, Any]:
    dice = np.random.default_rng(len(names))
    return {
        name: (
            dice.normal(size=(WIDTH, WIDTH)).astype(np.float32),
            dice.normal(size=WIDTH).astype(np.float32),
        )
        for name in names
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, plain_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("heads") / "model"
    with_heads(plain_model, draw_heads(*NAMES[:2])).save(str(folder))
    return folder


@pytest.fixture(scope="module")
def heads(model: Path) -> ExpertEncoder:
    return load(model, device="cpu")


@pytest.mark.parametrize("unit", ["title+abstract", "passages"])
def test_every_route_finds_what_its_own_vectors_would(
    tmp_path: Path, heads: ExpertEncoder, unit: str
) -> None:
    searcher = Searcher(BatchEncoder(heads), write_corpus(tmp_path), unit)
    for route in NAMES[:2]:
        blend = searcher.blend(route)
        (compared,) = searcher.compare(searcher.encode(["rice in the rain"], blend), blend)
        texts = searcher.papers.texts(range(5), unit)
        vectors = heads.encode(texts, prompt_name=route, normalize_embeddings=True)
        query = heads.encode("rice in the rain", prompt_name=route, normalize_embeddings=True)
        for hit in find_papers(searcher, "rice in the rain", route):
            assert hit.score == pytest.approx(float(vectors[hit.row] @ query), abs=1e-5)
        of_rows = searcher.vectors(blend.main).of_rows([0, 1, 3])
        assert of_rows[:2] == pytest.approx(vectors[[0, 1]], abs=1e-5)
        assert not of_rows[2].any(), "a paper without text"
        assert len(compared.nearest(9)) == 4
    assert len(list((tmp_path / ".vectors").glob("*/vectors.npy"))) == 1


def test_another_head_needs_no_encoding(
    tmp_path: Path, model: Path, heads: ExpertEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    assert len(build_index(model, corpus, route=["all"]).parts) == 1
    monkeypatch.setattr(index_module, "_build", lambda *given: pytest.fail("encoded again"))
    grown = tmp_path / "grown"
    with_heads(heads, draw_heads(*NAMES) | heads.head_routes).save(str(grown))
    (part,) = build_index(grown, corpus, route=["all"]).parts
    assert (part["route"], part["shared"], part["state"]) == (None, True, "whole")
    assert "(all heads)" in repr(CorpusIndex.open(corpus))
    assert len(list(Path(part["folder"]).glob("lengths-*.npz"))) == 3
    found = search(grown, corpus, "rice", route={"form": 1, "use": 3}, sentences=False)
    (papers,) = found.papers
    assert f"(mostly by {papers[0]['route']})" in repr(found)
    assert {paper["route"] for paper in papers} <= {"form", "use"}
    sentence_experts.drop_route(grown, "use", out=tmp_path / "smaller")
    assert len(build_index(tmp_path / "smaller", corpus, route=["all"]).parts) == 1


def test_a_blend_of_heads_encodes_a_query_once(
    tmp_path: Path, heads: ExpertEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = Searcher(BatchEncoder(heads), write_corpus(tmp_path))
    blend = searcher.blend({"use": 0.5, "works-with": 0.5})
    texts = ["rice in the rain", "sleep"]
    alone = [searcher.encode(texts, searcher.blend(route))[0] for route in NAMES[:2]]
    for route in blend.routes:
        searcher.vectors(route)
    encode, calls = BatchEncoder.encode, []
    monkeypatch.setattr(
        BatchEncoder, "encode", lambda *given, **named: calls.append(given[1]) or encode(*given, **named)
    )
    for together, each in zip(searcher.encode(texts, blend), alone, strict=True):
        assert together == pytest.approx(each, abs=1e-5)
    assert calls == [texts]


def test_routes_that_share_vectors_have_the_scores_of_each_alone(
    tmp_path: Path, heads: ExpertEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = Searcher(BatchEncoder(heads), write_corpus(tmp_path))
    routes = [searcher.blend(route) for route in NAMES[:2]]
    queries = [searcher.encode(["rice"], route)[0][0] for route in routes]
    vectors = [searcher.vectors(route.main) for route in routes]
    for numbers in (1, 3 * 2 * WIDTH, 10**6):  # blocks of one text, of three, of all
        monkeypatch.setattr(vectors_module, "_NUMBERS_PER_PRODUCT", numbers)
        both = scores_of(vectors, queries)
        for one, query, scores in zip(vectors, queries, both, strict=True):
            assert scores == pytest.approx(one.scores(query), abs=1e-6)


def test_heads_need_no_route_to_be_indexed(tmp_path: Path, model: Path, plain_model: Path) -> None:
    (part,) = build_index(model, write_corpus(tmp_path / "corpus")).parts
    assert part["shared"]
    assert len(list(Path(part["folder"]).glob("lengths-*.npz"))) == 2
    sentence_experts.add_route(model, "crops", kind="expert", out=tmp_path / "mixed")
    adapters = sentence_experts.extend(plain_model, routes=["crops", "neuro"], kind="adapter")
    for other in (tmp_path / "mixed", adapters):
        with pytest.raises(RouteError, match="needs a route; its routes: crops, "):
            build_index(other, tmp_path / "corpus")


def test_lengths_of_vectors_that_were_replaced_meanwhile_are_not_taken(
    tmp_path: Path, heads: ExpertEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"p{number:03}" for number in range(300)]
    texts = [(each, f"Rice {each}", None, 2000, False) for each in names]
    changed = [texts[0], (names[1], "Sleep of rats in the rain", None, 2000, False), *texts[2:]]
    computed = Head.over
    corpus = [write_corpus(tmp_path, texts)]

    def replaced(*given: Any) -> Head:
        monkeypatch.setattr(Head, "over", computed)
        corpus.append(write_corpus(tmp_path, changed))
        route_vectors(BatchEncoder(heads), corpus[1], "works-with")
        return computed(*given)

    monkeypatch.setattr(Head, "over", replaced)
    route_vectors(BatchEncoder(heads), corpus[0], "use")
    vectors = route_vectors(BatchEncoder(heads), corpus[1], "use")
    assert vectors.head is not None
    assert vectors.head.lengths == pytest.approx(computed(*heads.head_routes["use"], vectors.vectors).lengths)


def test_lengths_that_do_not_fit_or_are_damaged_are_computed_again(
    tmp_path: Path, heads: ExpertEncoder
) -> None:
    corpus = write_corpus(tmp_path)
    before = find_papers(Searcher(BatchEncoder(heads), corpus), "rice", "use")
    (file,) = tmp_path.rglob("lengths-*.npz")
    whole = file.read_bytes()
    lengths = np.load(file)["lengths"]
    start = whole.index(lengths.tobytes())
    flipped = (whole[: start + k] + bytes([whole[start + k] ^ 64]) + whole[start + k + 1 :] for k in range(4))
    for content in (b"", whole[:-30], lengths[:2], lengths * 1.5, *flipped):
        file.write_bytes(content) if isinstance(content, bytes) else write_npy(file, content, "lengths")
        assert find_papers(Searcher(BatchEncoder(heads), corpus), "rice", "use") == before
        assert file.read_bytes() == whole


@pytest.mark.parametrize("kind", ["expert", "adapter"])
def test_heads_on_several_routes_of_a_model_in_memory_do_not_share_vectors(
    tmp_path: Path, plain_model: Path, kind: str
) -> None:
    """Its hash is that of all its weights, and tells routes apart no more than that of a hub model."""
    grown = extend(plain_model, routes=["a", "b"], kind=kind)
    with torch.no_grad():
        for name, weight in grown.named_parameters():
            if ".experts.1." in name or "adapters.1." in name:
                weight.add_(torch.randn(weight.shape) * 0.3)
    for route, heads in (("a", ("one", "other")), ("b", ("third",))):
        grown = with_heads(grown, draw_heads(*heads), on=route)
    corpus = write_corpus(tmp_path)
    for route in ("one", "third", "other"):
        searcher = Searcher(BatchEncoder(grown), corpus, "title+abstract")
        vectors = grown.encode(searcher.papers.texts(range(5), "title+abstract"), prompt_name=route)
        query = grown.encode("rice in the rain", prompt_name=route, normalize_embeddings=True)
        for hit in find_papers(searcher, "rice in the rain", route):
            vector = vectors[hit.row] / np.linalg.norm(vectors[hit.row])
            assert hit.score == pytest.approx(float(vector @ query), abs=1e-5)
    assert len(list((tmp_path / ".vectors").glob("*/vectors.npy"))) == 2, "heads on one route share them"

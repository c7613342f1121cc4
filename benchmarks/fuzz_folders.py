"""Folders of corpora, pairs, tasks, search indexes and models with one broken file, and who reads them."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from fuzz_values import break_bytes, break_json

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # for `helpers`


@cache
def _folders() -> dict[str, Path]:
    """A corpus, pairs and tasks, made once for all."""
    from sentence_experts.corpus.importing import import_corpus
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.tasks.compile import compile_tasks

    base = Path(tempfile.mkdtemp(prefix="fuzz-"))
    papers = [{"id": f"p{n}", "title": f"Title {n}", "abstract": "A", "subjects": "A; B"} for n in range(9)]
    citations = [{"citing": f"c{n}", "cited": f"p{k}"} for n in range(3) for k in range(9)]
    import_corpus(papers=papers, citations=citations, out=base / "corpus", workers=1)
    pairs = [
        {"anchor": f"a {n}", "positive": f"b {n}", "split": s} for n in range(9) for s in ("train", "test")
    ]
    Pairs.of(pairs).save(base / "pairs")
    texts = pa.table({"text": [f"I feel {n}" for n in range(40)], "label": ["x", "y"] * 20})
    compile_tasks({"mood": {"kind": "classification", "datasets": {"d": texts}}}, out=base / "tasks")
    return {name: base / name for name in ("corpus", "pairs", "tasks")}


def _break_file(random: Random, source: Path, folder: Path) -> Path:
    """A copy of a folder with one broken, missing, empty or exchanged file."""
    copy = folder / source.name
    shutil.copytree(source, copy)
    files = sorted(file for file in copy.rglob("*") if file.is_file() and file.suffix != ".md")
    file = random.choice(files)
    how = random.random()
    if how < 0.05:
        file.unlink()
    elif how < 0.1:
        file.write_bytes(b"")
    elif how < 0.15:
        shutil.copy(random.choice(files), folder / "other")
        (folder / "other").replace(file)
    elif file.suffix == ".json" and how < 0.7:
        file.write_bytes(break_json(random, json.loads(file.read_bytes())))
    else:
        file.write_bytes(break_bytes(random, file.read_bytes()))
    return copy


def break_folder(random: Random, folder: Path) -> Path:
    return _break_file(random, _folders()[random.choice(sorted(_folders()))], folder)


def read_folder(path: Path) -> None:
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.pairs.compile import compile_pairs
    from sentence_experts.pairs.dataset import Pairs
    from sentence_experts.tasks.dataset import Tasks

    if path.name == "corpus":
        corpus = CorpusFolder.open(path)
        repr(corpus)
        corpus.count_values("subjects")
        corpus.to_pandas()
        compile_pairs(corpus, unit="title", split="random", fractions="0.5,0.3,0.2")
    elif path.name == "pairs":
        Pairs.open(path).to_pandas()
    else:
        tasks = Tasks.open(path)
        repr(tasks)
        tasks.to_pandas()


class _Encoder:
    """Stands for a model: vectors of eight numbers."""

    fingerprint, name, experts = "f", "stub", ()
    model = SimpleNamespace(max_seq_length=8)
    rounding_settings: ClassVar[dict[str, Any]] = {}

    def chosen_route(self, route: str | None) -> str | None:
        return route

    def vector_settings(self, route: str | None) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint, "route": route}

    def encode(self, texts: list[str], *_: Any, **__: Any) -> np.ndarray:
        rows = np.array([[1.0 + len(text), *range(1, 8)] for text in texts], dtype=np.float32)
        whole: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return whole


@cache
def _indexed() -> Path:
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.retrieval.index import route_vectors

    corpus = _folders()["corpus"]
    indexed = corpus.parent / "indexed"
    shutil.copytree(corpus, indexed)
    encoder: Any = _Encoder()
    route_vectors(encoder, CorpusFolder.open(indexed), None, "title")
    return indexed


def break_index(random: Random, folder: Path) -> Path:
    copy = folder / "corpus"
    shutil.copytree(_indexed(), copy)
    (index,) = [path.parent for path in copy.glob(".vectors/*/made_from.json")]
    broken = _break_file(random, index, folder)
    shutil.rmtree(index)
    broken.replace(index)
    return copy


def read_index(path: Path) -> None:
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.retrieval.index import route_vectors
    from sentence_experts.retrieval.papers import Papers

    corpus = CorpusFolder.open(path)
    encoder: Any = _Encoder()
    rows, scores = route_vectors(encoder, corpus, None, "title").search(encoder.encode(["Title 3"]), 3)[0]
    assert (abs(scores) <= 1.001).all(), scores
    Papers(corpus).facts(rows.tolist())


@cache
def _models() -> list[Path]:
    """Small models: one for each way to choose an expert, and one with automatic routes."""
    import sentence_experts
    from helpers.samples import make_tiny_encoder
    from sentence_experts.models.automatic import fit_auto_routes
    from sentence_experts.models.sources import minilm_path

    base = Path(tempfile.mkdtemp(prefix="fuzz-models-"))
    plain = make_tiny_encoder(base / "plain", minilm_path())
    for router in ("route", "learned", "token"):
        sentence_experts.extend(plain, ["a", "b"], router=router, out=base / router)
    sentence_experts.extend(plain, ["a", "b"], route="prefix", out=base / "prefix")
    token = sentence_experts.extend(plain, ["a", "b"])
    fit_auto_routes(token, ["rice", "wheat", "heart", "lung"], ["a", "a", "b", "b"]).save(str(base / "auto"))
    return [base / name for name in ("route", "learned", "token", "prefix", "auto")]


def break_model(random: Random, folder: Path) -> Path:
    return _break_file(random, random.choice(_models()), folder)


def read_model(path: Path) -> None:
    from sentence_experts.models.loading import load

    load(path, device="cpu", int8=False)

"""Tiny random models, and one server of them in a separate process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sentence_transformers import SentenceTransformer
from starlette.testclient import TestClient

import sentence_experts
from helpers.running_server import RunningServer, running_server
from helpers.searched_corpus import write_searched_corpus
from sentence_experts.corpus.corpus_folder import CorpusFolder
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.loading import load


@pytest.fixture(scope="session")
def experts(experts_model: Path) -> ExpertEncoder:
    return load(experts_model, device="cpu")


@pytest.fixture(scope="session")
def server(plain_model: Path, experts_model: Path) -> Iterator[RunningServer]:
    """Serves "experts" and "dense"."""
    with running_server(experts_model, f"dense={plain_model}") as running:
        yield running


@pytest.fixture(scope="session")
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def plain(plain_model: Path) -> SentenceTransformer:
    return load(plain_model, device="cpu")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    return write_searched_corpus(tmp_path_factory.mktemp("search") / "corpus")


@pytest.fixture(scope="session")
def search_client(
    experts: ExpertEncoder, plain: SentenceTransformer, corpus: CorpusFolder
) -> Iterator[TestClient]:
    """Client of an app with this corpus and the models "m" (experts) and "dense"."""
    models = {"m": experts, "dense": plain}
    app = sentence_experts.create_app(models, corpus=corpus.path, watch=False)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client

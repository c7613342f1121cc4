"""Tiny random models, and one server of them in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from helpers.running_server import RunningServer, running_server
from helpers.samples import make_tiny_encoder
from sentence_experts.models.encoder import ExpertEncoder
from sentence_experts.models.loading import load

EXPERTS = ("crops", "neuro")
TEXTS = ["Rice in drought", "Sleep and memory", "", "wheat " * 300, "Ein Satz über Ähren 🌾"]


@pytest.fixture(scope="session")
def plain_folder(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "plain", minilm)


@pytest.fixture(scope="session")
def experts_folder(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, EXPERTS)


@pytest.fixture(scope="session")
def experts(experts_folder: Path) -> ExpertEncoder:
    return load(experts_folder, device="cpu")


@pytest.fixture(scope="session")
def server(plain_folder: Path, experts_folder: Path) -> Iterator[RunningServer]:
    """Serves "experts" and "dense"."""
    with running_server(experts_folder, f"dense={plain_folder}") as running:
        yield running


@pytest.fixture(scope="session")
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client

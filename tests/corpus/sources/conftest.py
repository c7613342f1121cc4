"""A served world, and a client that asks it without waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.replay_server import Replay, serving
from sentence_experts.corpus.config import Services
from sentence_experts.corpus.sources import client as client_module
from sentence_experts.corpus.sources.client import Client
from sentence_experts.corpus.sources.journal import MEMORY, open_journal

Connect = Callable[..., Client]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(client_module, "TIMEOUT", 0.4)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the number of attempts of clients that are opened afterwards."""
    return lambda number: monkeypatch.setattr(client_module, "ATTEMPTS", number)


@pytest.fixture
def world() -> Replay:
    return Replay()


@pytest.fixture
def connect(world: Replay, attempts: Callable[[int], None]) -> Iterator[Connect]:
    """A client of the world, with a journal in memory unless a path is given."""
    with ExitStack() as stack:
        base = stack.enter_context(serving(world))

        def make(journal: Path = MEMORY, tries: int = 6, **settings: str) -> Client:
            attempts(tries)
            services = Services.model_validate(world.services(base))
            answers = stack.enter_context(open_journal(journal))
            return stack.enter_context(Client(services, answers, **{"email": "a@b.org", **settings}))

        yield make

"""A served world, and a client that asks it without waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.replay_server import Replay, serving
from sentence_experts.corpus.sources.client import Client
from sentence_experts.corpus.sources.journal import MEMORY, open_journal
from sentence_experts.corpus.sources.services import Services

Connect = Callable[..., Client]


@pytest.fixture
def world() -> Replay:
    return Replay()


@pytest.fixture
def connect(world: Replay) -> Iterator[Connect]:
    """A client of the world, with a journal in memory unless a path is given."""
    with ExitStack() as stack:
        base = stack.enter_context(serving(world))

        def make(journal: Path = MEMORY, **settings: object) -> Client:
            services = Services.model_validate(world.services(base))
            settings = {"email": "a@b.org", "first_wait": 0.01, "timeout": 0.4, **settings}
            answers = stack.enter_context(open_journal(journal))
            return stack.enter_context(Client(services, answers, **settings))

        yield make

"""Tiny language models with experts, one of each family."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.small_language_models import make_language_model

TEXTS = [
    "rice grows in the rain",
    "sleep, memory and the cortex: neurons fire in sleep",
    "a virus infect the host cells and spreads to the new cells",
    "drought",
]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return list(TEXTS)


@pytest.fixture(scope="session")
def olmoe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_language_model(tmp_path_factory.mktemp("language-models") / "olmoe", "olmoe")

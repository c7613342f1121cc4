"""The tests here that take a family run for all of them at every change."""

from __future__ import annotations

import pytest


@pytest.fixture(params=("bert", "modernbert", "nomic_bert"))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)

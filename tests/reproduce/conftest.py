from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan where there are no real articles."""
    monkeypatch.delenv("SENTENCE_EXPERTS_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

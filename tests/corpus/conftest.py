"""A folder of small articles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write named documents (text or bytes) into a new folder."""

    def write(**documents: str | bytes) -> Path:
        target = tmp_path / "articles"
        for name, content in documents.items():
            path = target / f"{name}.xml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target

    return write

"""Papers and citations from the user's own tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class UserTables:
    """Stub."""

    @classmethod
    def open(cls, papers: Path | str | None, citations: Path | str | None) -> UserTables | None:
        """Stub."""
        return None

    def described(self) -> list[dict[str, Any]]:
        """Stub."""
        return []

    def parse(self, shards: Path, source: int) -> None:
        """Stub."""

"""What a result was made from, noted beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_experts.storage.files import read_json, write_json
from sentence_experts.storage.locking import locked


class StepRecords:
    """What each result was made from, by name, in one JSON file that several processes may share."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def get(self, name: str) -> dict[str, Any] | None:
        """What was noted for a result."""
        return self._read().get(name)

    def note(self, name: str, record: Mapping[str, Any] | None) -> None:
        """Note what a result was made from; None forgets it."""
        with locked(self.file, f"note {name}", wait=True):
            records = self._read()
            records.pop(name, None)
            write_json(self.file, records if record is None else {**records, name: dict(record)})

    def _read(self) -> dict[str, Any]:
        records: dict[str, Any] = read_json(self.file) if self.file.exists() else {}
        return records

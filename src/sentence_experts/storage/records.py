"""What a result was made from, noted beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from sentence_experts.errors import UsageError
from sentence_experts.storage.files import read_json, write_json
from sentence_experts.storage.locking import locked
from sentence_experts.storage.output import different_setting

OutputState = Literal["new", "unfinished", "finished"]


def open_output(
    out: Path,
    settings: Mapping[str, Any],
    *,
    what: str,
    finished_file: str,
    settings_file: str = "started.json",
    resume: bool = True,
    keep_unfinished: bool = True,
) -> OutputState:
    """Begin an output folder, or find that it holds a run of the same settings.

    Call it under `locked(out, ...)`. A new folder gets its settings file here.

    Args:
        out: the folder.
        settings: everything that decides the result, as plain JSON values.
        what: is made, such as "training run"; for messages.
        finished_file: exists once the result is whole.
        settings_file: where the settings are noted.
        resume: whether the run may go on with what is there.
        keep_unfinished: whether an unfinished run has anything to lose; if not, it is begun anew.

    Returns:
        "new", "unfinished" or "finished".

    Raises:
        UsageError: the folder holds something else, a run of other settings, or a run while `resume` is off.
    """
    noted = out / settings_file
    finished = (out / finished_file).exists()
    if not noted.exists() and out.exists() and any(out.iterdir()):
        raise UsageError(f"{out}: not empty and not a {what}; give another `out`")
    if not noted.exists() or not (finished or keep_unfinished):
        write_json(noted, dict(settings))
        return "new"
    if not resume:
        raise UsageError(f"{out}: holds a {what} already; go on with `resume`, or give another `out`")
    before = read_json(noted)
    if name := different_setting(before, settings):
        value: Any = before
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        raise UsageError(f"{out}: this {what} was started with another {name}: {value}")
    return "finished" if finished else "unfinished"


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

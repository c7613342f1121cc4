"""Which steps are done: a file beside their results, so that a run goes on where it was.

A step is done when its result was made by the same command from the same inputs, by what is in their files:
whatever was made from a result that has changed is made anew.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from sentence_experts.errors import UsageError
from sentence_experts.models.storage.fingerprint import folder_fingerprint
from sentence_experts.reproduce.step import Step
from sentence_experts.storage import read_json, sha256_file, write_json

logger = logging.getLogger(__name__)


class Journal:
    """What was made, by which command and from what. Recipes that run at once may share the file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def is_done(self, step: Step) -> bool:
        """Whether the step's result is there, made by this very command from inputs as they are now.

        Raises:
            UsageError: it was made by another command, and what was made of it since would no longer fit.
        """
        before = self._noted().get(str(step.makes))
        if before is None or not step.makes.exists():
            return False
        made_by = before["command"]
        if made_by != list(step.command) and not step.can_be_replaced:
            raise UsageError(
                f"{step.makes}: made with other settings (by `sentence-experts {' '.join(made_by[:2])} "
                "...`); give another --out, or remove that folder and what was made from it"
            )
        return bool(before == _note(step))

    def begin(self, step: Step) -> None:
        """Forget what is noted of a step that is about to run: if it is interrupted, it is not done.

        A finished training or search that was made from other inputs is removed, since its command would only
        go on with the same ones.
        """
        noted = self._noted()
        outdated = noted.pop(str(step.makes), None)
        if outdated is None:
            return
        if step.resumes and step.makes.exists():
            logger.info(f"{step.makes.parent}: removed, what it was made from has changed")
            shutil.rmtree(step.makes.parent)
        write_json(self._file, noted)

    def note(self, step: Step) -> None:
        """Write down that the step is done."""
        write_json(self._file, {**self._noted(), str(step.makes): _note(step)})

    def _noted(self) -> dict[str, Any]:
        """As the file is now: another recipe may have written to it."""
        return read_json(self._file) if self._file.exists() else {}


def _note(step: Step) -> dict[str, Any]:
    return {
        "command": list(step.command),
        "made_from": {str(path): _fingerprint(path) for path in step.made_from},
    }


def _fingerprint(path: Path) -> str:
    return folder_fingerprint(path) if path.is_dir() else sha256_file(path)

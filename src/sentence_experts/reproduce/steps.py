"""The steps of a recipe: calls of this package's public functions, and which of them are done.

A step is done when its result was made by the same call from the same inputs, compared by their content: a
result is made again whenever something that it was made from has changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentence_experts
from sentence_experts.errors import UsageError
from sentence_experts.models.files.fingerprint import path_fingerprint
from sentence_experts.reproduce import calls
from sentence_experts.storage import StepRecords

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """A call of a function of `reproduce.calls`, or of a public one.

    Attributes:
        function: its name.
        arguments: plain values, or calls that give them.
    """

    function: str
    arguments: Mapping[str, Any]

    def __call__(self) -> Any:
        """What the function returns."""
        function = getattr(calls, self.function, None) or getattr(sentence_experts, self.function)
        given = {key: value() if isinstance(value, Call) else value for key, value in self.arguments.items()}
        return function(**given)

    def __str__(self) -> str:
        """The call as one line of Python."""
        shown = {
            key: str(value) if isinstance(value, Call) else repr(_plain(value))
            for key, value in self.arguments.items()
        }
        return f"{self.function}({', '.join(f'{key}={value}' for key, value in shown.items())})"


@dataclass(frozen=True)
class Step:
    """One call of a public function.

    Attributes:
        call: a function of `reproduce.calls`, or a public one.
        arguments: what it works on, as plain values or calls.
        settings: the settings of its `Config`.
        makes: exists once the step is done.
        made_from: files and folders that it reads and that may change; if they do, it is run again.
        can_be_replaced: nothing is made from it, so it may be made again with other settings.
    """

    call: str
    arguments: Mapping[str, Any]
    makes: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    made_from: tuple[Path, ...] = ()
    can_be_replaced: bool = False

    def run(self, **more: Any) -> None:
        """Call the function, with `more` arguments."""
        Call(self.call, {**self.arguments, **self.settings, **more})()

    def __str__(self) -> str:
        """The call as one line of Python."""
        return str(self._whole)

    @property
    def _whole(self) -> Call:
        return Call(self.call, {**self.arguments, **self.settings})

    def record(self) -> dict[str, Any]:
        """The call and the hashes of its inputs, as plain values."""
        return {
            "call": {
                "function": self.call,
                "arguments": _plain(self.arguments),
                "settings": _plain(self.settings),
            },
            "made_from": {str(path): path_fingerprint(path) for path in self.made_from},
        }


class FinishedSteps:
    """Which steps are done, by one file beside their results. Recipes that run at once may share it."""

    def __init__(self, file: Path) -> None:
        self._records = StepRecords(file)

    def is_done(self, step: Step) -> bool:
        """Whether the step's result exists, made by this very call from inputs as they are now.

        Raises:
            UsageError: it was made by another call, and what was made from it since would no longer fit.
        """
        before = self._records.get(str(step.makes))
        if before is None or not step.makes.exists():
            return False
        now = step.record()
        if before.get("call") != now["call"] and not step.can_be_replaced:
            raise UsageError(
                f"{step.makes}: made with other settings; give another `out`, or remove that folder and what "
                "was made from it"
            )
        return before == now

    def run(self, step: Step) -> None:
        """Run a step, or continue it; a result that was made from other inputs is replaced."""
        name = str(step.makes)
        if (before := self._records.get(name)) is not None:
            self._records.note(name, {"call": before["call"]})  # if it is interrupted, it is not done
        try:
            step.run()
        except UsageError:
            if before is None:
                raise
            logger.info(f"{step.makes}: made again, what it was made from has changed")
            step.run(overwrite=True)

    def finish(self, step: Step) -> None:
        """Record that the step is done."""
        self._records.note(str(step.makes), step.record())


def run_steps(steps: Sequence[Step], records: Path) -> None:
    """Run the steps that are not done yet; `records` is the file that notes which are.

    Raises:
        UsageError: a result exists that was made with other settings.
    """
    finished = FinishedSteps(records)
    for number, step in enumerate(steps, start=1):
        place = f"step {number} of {len(steps)}"
        if finished.is_done(step):
            logger.info(f"{place}: {step.call}: {step.makes} is done")
            continue
        logger.info(f"{place}: {step}")
        began = time.monotonic()
        finished.run(step)
        finished.finish(step)
        logger.info(f"{place}: took {time.monotonic() - began:.0f} s")


def _plain(value: Any) -> Any:
    """Paths as text, tuples as lists, so that a record is the same after it was read back."""
    if isinstance(value, Call):
        return {"function": value.function, "arguments": _plain(value.arguments)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value

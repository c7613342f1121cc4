"""A training that dies at one certain point, as `kill -9` would end it: for tests of resuming."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.fresh_process import fresh


def run_until_killed(
    work: Callable[..., Any], arguments: tuple[Any, ...], out: Path, checkpoint: str
) -> None:
    """Do `work` in a process that is killed as it begins the first step after a checkpoint.

    Args:
        work: a function of a module, which trains.
        arguments: its arguments.
        out: the folder in which it trains.
        checkpoint: a pattern in `out`, of the folder whose appearance ends the process.
    """
    child = fresh().Process(target=_work_and_die, args=(work, arguments, out, checkpoint))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL, f"ended by itself with {child.exitcode}"


def die_after(out: Path, checkpoint: str) -> None:
    """Let this process be killed as it begins the first step after a checkpoint."""

    def die(*args: Any, **kwargs: Any) -> None:
        if any(out.glob(checkpoint)):
            os.kill(os.getpid(), signal.SIGKILL)

    from sentence_experts.training.trainer import RunCallback

    RunCallback.on_step_begin = die  # type: ignore[method-assign]


def _work_and_die(work: Callable[..., Any], arguments: tuple[Any, ...], out: Path, checkpoint: str) -> None:
    die_after(out, checkpoint)
    work(*arguments)

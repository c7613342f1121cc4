"""Several processes that train one model together, as `torchrun` or `accelerate launch` starts them."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

from accelerate.utils import broadcast_object_list
from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]  # documented

from sentence_experts.errors import SentenceExpertsError

# Longest time that processes wait for one that works alone.
WAIT_FOR_WORK = timedelta(hours=2)
# Longest time for the others to read what the first process has sent.
WAIT_FOR_RECEIPT = timedelta(minutes=5)


class OtherProcessEndedError(SentenceExpertsError):
    """Another process of this training has ended, so this one cannot continue."""

    def __init__(self) -> None:
        rank = os.environ.get("RANK", "0")
        super().__init__(
            f"process {rank} of {count()}: another process of this training has ended, or the training was "
            "stopped; see that process's own message. The same command continues from the last checkpoint"
        )


def count() -> int:
    """Return the number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def is_first() -> bool:
    """Return whether this process is the one that logs and writes."""
    return count() == 1 or os.environ.get("RANK", "0") == "0"


def log_in_first_only() -> None:
    """Silence the other processes, which would log the same."""
    if not is_first():
        logging.getLogger("sentence_experts").setLevel(logging.ERROR)


def once(work: Callable[[], Any]) -> Any:
    """Call a function in the first process while the others wait; all get its result.

    Call it after the trainer's arguments are made, which join the processes.

    Raises:
        SentenceExpertsError: in every process, what `work` raised in the first.
    """
    outcome: list[Any] = [None, None]
    if is_first():
        try:
            outcome[0] = work()
        except SentenceExpertsError as error:
            outcome[1] = error
    result, failure = broadcast_object_list(outcome) if count() > 1 else outcome
    _hold_the_first()
    if failure is not None:
        raise failure
    return result


@contextmanager
def end_together() -> Iterator[None]:
    """Raise one clear error in this process if another one ends while the block runs.

    A process that dies closes its connections, which the others notice in their next exchange; the launcher
    sends them SIGTERM at about the same time.

    Raises:
        OtherProcessEndedError: another process has ended, or this one was asked to.
    """
    if count() == 1:
        yield
        return

    def stop(*_: Any) -> None:
        raise OtherProcessEndedError

    def pass_once(*_: Any) -> None:
        signal.signal(signal.SIGTERM, before)

    in_main = threading.current_thread() is threading.main_thread()  # others may not set handlers
    before = signal.signal(signal.SIGTERM, stop) if in_main else None
    after: Any = before
    try:
        yield
    except RuntimeError as error:
        # The errors of NCCL and of the store have a class; gloo's are known by its name.
        if isinstance(error, DistError) or "gloo" in str(error):
            after = pass_once  # the launcher's SIGTERM, which would end this process before it says why
            raise OtherProcessEndedError from error
        raise
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, after)


def _hold_the_first() -> None:
    """Hold the first process until the others have what it broadcast.

    Gloo fails a receive that is complete if the sender's connection closes before the receiver wakes. So the
    first process, which may end now, stays until each of the others has counted itself in the store.
    """
    if count() == 1:
        return
    if not is_first():
        _store().add("received", 1)
        return
    expected = _store().add("rounds", 1) * (count() - 1)
    deadline = time.monotonic() + WAIT_FOR_RECEIPT.total_seconds()
    while _store().add("received", 0) < expected:
        if time.monotonic() > deadline:
            raise OtherProcessEndedError
        time.sleep(0.01)


@cache
def _store() -> PrefixStore:
    """Return our store in the server through which the processes found each other."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return PrefixStore("sentence_experts", TCPStore(host, port, timeout=timedelta(minutes=30)))

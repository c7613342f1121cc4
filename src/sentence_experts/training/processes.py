"""Several processes that train one model together, as `torchrun` or `accelerate launch` starts them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

from accelerate.utils import broadcast_object_list, wait_for_everyone
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # documented

from sentence_experts.errors import SentenceExpertsError


def count() -> int:
    """The number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def is_first() -> bool:
    """Whether this process is the one that logs and writes."""
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


def wait_for_all() -> None:
    """Wait until each process is here."""
    if count() > 1:
        wait_for_everyone()


def _hold_the_first() -> None:
    """Hold the first process until the others have what it broadcast.

    Gloo fails a receive that is complete if the sender's connection closes before the receiver wakes. So the
    first process, which may end now, stays until each of the others has counted itself in the store.
    """
    if count() == 1:
        return
    if is_first():
        round_number = _store().add("rounds", 1)
        while _store().add("received", 0) < round_number * (count() - 1):
            time.sleep(0.01)
    else:
        _store().add("received", 1)


@cache
def _store() -> PrefixStore:
    """A store of our own in the server through which the processes found each other."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return PrefixStore("sentence_experts", TCPStore(host, port, timeout=timedelta(minutes=30)))

"""Honest clients beside ones that leave, send garbage and texts of 2 MB."""

from __future__ import annotations

import pytest

from helpers.running_server import EXPERTS


@pytest.mark.slow
def test_no_accepted_request_is_lost_and_memory_stays() -> None:
    from serve import soak  # the benchmark

    found = soak([f"A title about {name}" for name in EXPERTS], 60)
    assert found["answers"] > found["busy"]
    assert (found["lost"], found["queue_left"], found["exit"]) == (0, 0, 0)
    half = found["memory_mib"][len(found["memory_mib"]) // 2 :]
    assert max(half) < 1.3 * min(half)

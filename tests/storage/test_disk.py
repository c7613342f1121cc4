"""A full disk is one line."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from sentence_experts.storage import NoSpaceError, explained, locked


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EFBIG, "File too large"),
        OSError("7680 requested and 718 written"),
        RuntimeError("[enforce fail at inline_container.cc:659] . unexpected pos 64 vs 0"),
        ValueError("Error while serializing: I/O error: No space left on device (os error 28)"),
        OSError(
            'Async write failed: {"exception_message":"Could not write \\"a\\": File too large","errno":"27"}'
        ),
    ],
)
def test_full_disk_is_one_line_from_every_library(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(NoSpaceError, match=r"MB free in .*make room"), locked(tmp_path / "out", "write"):
        raise error


@pytest.mark.parametrize(
    "error", [KeyError("no space left on device"), ValueError("bad text 'There is no space left.'")]
)
def test_other_errors_stay_what_they_are(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as found, explained(tmp_path):
        raise error
    assert found.value is error

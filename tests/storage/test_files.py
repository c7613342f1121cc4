"""JSON that is none, or none that can be read, is one line with the file's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentence_experts.errors import InputError
from sentence_experts.storage import read_json


@pytest.mark.parametrize("content", [b"[" * 100_000, b"9" * 5000, b"\xff", b"{", b""])
def test_json_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json: not valid JSON") as caught:
        read_json(tmp_path / "a.json")
    assert len(str(caught.value).splitlines()) == 1


def test_folder_is_no_json_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        read_json(tmp_path)

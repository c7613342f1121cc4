"""The real bibliographic samples, with the counts that a separate parser made of them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest


class Samples:
    """The samples of one folder of `bibliographic.tar.xz`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expected: dict[str, dict[str, Any]] = json.loads((folder / "expected.json").read_text())["files"]
        (folder / "expected.json").unlink()


def unpack_samples(real_data: Path, name: str, out: Path) -> Samples:
    """Unpack one folder of the samples; skips the test if they are not there."""
    archive = real_data / "formats" / "bibliographic.tar.xz"
    if not archive.is_file():
        pytest.skip("needs the bibliographic samples")
    with tarfile.open(archive) as packed:
        members = [member for member in packed if f"/{name}/" in f"/{member.name}" and member.isfile()]
        packed.extractall(out, members=members, filter="data")
    return Samples(next(out.rglob("expected.json")).parent)

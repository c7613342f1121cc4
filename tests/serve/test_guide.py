"""What docs/serve.md tells clients to do works against a running server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from helpers.running_server import RunningServer, running_server

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "serve.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
CLIENTS = [block for block in BLOCKS if "127.0.0.1:8000" in block]


@pytest.fixture(scope="module")
def demo(experts_folder: Path, plain_folder: Path) -> Iterator[RunningServer]:
    with running_server(f"demo={experts_folder}", f"minilm={plain_folder}") as running:
        yield running


@pytest.mark.parametrize("block", CLIENTS, ids=range(len(CLIENTS)))
def test_each_client_of_the_guide_is_answered(
    demo: RunningServer, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    code = block.replace("http://127.0.0.1:8000", demo.url)
    exec(code.replace("genomics", "crops").replace("neuroscience", "neuro"), {})


def test_the_guide_has_clients() -> None:
    assert len(CLIENTS) == 3

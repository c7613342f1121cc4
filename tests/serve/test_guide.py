"""The instructions of docs/serve.md for clients work against a running server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from huggingface_hub import constants

from helpers.running_server import RunningServer

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / "docs" / "serve.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
REQUESTS = re.findall(r"curl http://127.0.0.1:8000(\S+) --json '(.*)'", TEXT)
CLIENTS = [block for block in BLOCKS if "127.0.0.1:8000" in block]


NAMES = {"demo": "experts", "minilm": "dense", "genomics": "crops", "neuroscience": "neuro"}  # of ours


@pytest.mark.parametrize("block", CLIENTS, ids=range(len(CLIENTS)))
def test_each_client_of_the_guide_is_answered(
    server: RunningServer, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    code = block.replace("http://127.0.0.1:8000", server.url)
    for name, ours in NAMES.items():
        code = re.sub(rf"\b{name}\b", ours, code)
    exec(code, {})


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_each_request_of_the_guide_is_answered(server: RunningServer, path: str, body: str) -> None:
    for name, ours in NAMES.items():
        body = body.replace(f'"{name}"', f'"{ours}"')
    answer = httpx.post(f"{server.url}{path}", json=json.loads(body))
    assert answer.status_code == 200, answer.text


def test_the_guide_has_clients() -> None:
    assert len(CLIENTS) == 3
    assert REQUESTS

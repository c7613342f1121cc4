"""A stand-in for the Hugging Face hub on this machine: one repository that can be read."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

COMMIT = "0" * 40


class Hub(SimpleHTTPRequestHandler):
    """Answers the hub's client about one model, whose files are in a folder; notes the files it fetches."""

    fetched: list[str]

    def do_GET(self, body: bool = True) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/"):
            info = {"id": "me/model", "sha": COMMIT, "siblings": []}
            self._send(json.dumps(self._tree() if "/tree/" in path else info).encode(), body)
            return
        name = next((path.partition(each)[2] for each in (f"/{COMMIT}/", "/main/") if each in path), "")
        file = Path(self.directory) / name
        if not name or not file.is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if body:
            self.fetched.append(name)
        self._send(file.read_bytes(), body)

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def _tree(self) -> list[dict[str, Any]]:
        files = [file for file in sorted(Path(self.directory).rglob("*")) if file.is_file()]
        return [
            {
                "type": "file",
                "path": file.relative_to(self.directory).as_posix(),
                "size": file.stat().st_size,
                "oid": "0",
            }
            for file in files
        ]

    def _send(self, content: bytes, body: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def running_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """A hub whose repository is a folder, and which the hub's client asks; its class has what was asked."""
    from huggingface_hub import HfApi, constants, hf_api

    handler = type("RunningHub", (Hub,), {"fetched": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # which would need a second service
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(hf_api, "api", HfApi(endpoint=endpoint))
    try:
        yield handler
    finally:
        server.shutdown()
        server.server_close()

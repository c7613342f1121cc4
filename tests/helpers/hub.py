"""A stand-in for the Hugging Face hub on this machine: one repository, and what it was asked."""

from __future__ import annotations

import base64
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
LFS = (".safetensors",)


class Hub(SimpleHTTPRequestHandler):
    """What the hub's client asks for one model: reads it from a folder, and writes commits to it."""

    server: ThreadingHTTPServer
    fetched: list[str]
    posted: list[tuple[str, Any]]
    uploaded: dict[str, bytes]

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

    def do_PUT(self) -> None:
        self.uploaded[self.path.removeprefix("/lfs/")] = self._read()
        self._send(b"")

    def do_POST(self) -> None:
        path, content = self.path.partition("?")[0], self._read()
        if "/commit/" in path:
            self._send(json.dumps(self._commit([json.loads(line) for line in content.splitlines()])).encode())
            return
        given = json.loads(content or b"{}")
        self.posted.append((path, given))
        if path.endswith("/repos/create"):
            answer: Any = {"url": f"{self._address()}/me/model", "name": "me/model"}
        elif "/preupload/" in path:
            files = [
                {
                    "path": each["path"],
                    "uploadMode": "lfs" if each["path"].endswith(LFS) else "regular",
                    "shouldIgnore": False,
                }
                for each in given["files"]
            ]
            answer = {"files": files}
        elif path.endswith("/objects/batch"):
            href = f"{self._address()}/lfs/"
            answer = {
                "transfer": "basic",
                "objects": [
                    {**each, "actions": {"upload": {"href": href + each["oid"], "header": {}}}}
                    for each in given["objects"]
                ],
            }
        else:
            answer = {}
        self._send(json.dumps(answer).encode())

    def _commit(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        """Write the files of a commit, each checked against its hash."""
        self.posted.append(("commit", [(line["key"], line["value"].get("path")) for line in lines]))
        for line in lines:
            value = line["value"]
            if line["key"] not in ("file", "lfsFile"):
                continue
            if line["key"] == "file":
                content = base64.b64decode(value["content"])
            else:
                content = self.uploaded[value["oid"]]
                assert hashlib.sha256(content).hexdigest() == value["oid"]
            file = Path(self.directory) / value["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return {"commitUrl": f"{self._address()}/me/model/commit/{COMMIT}", "commitOid": COMMIT}

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

    def _address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

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

    handler = type("RunningHub", (Hub,), {"fetched": [], "posted": [], "uploaded": {}})
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

"""A server of models in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAIN = "from sentence_experts.cli.main import main; main()"
EXPERTS = ("crops", "neuro")  # of the tiny model that tests serve
TEXTS = ["Rice in drought", "Sleep and memory", "", "wheat " * 300, "Ein Satz über Ähren 🌾"]
SECONDS = 150  # for a busy machine to begin in, or to end


@dataclass
class RunningServer:
    """A `serve` process, and what it has written to stderr."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    url: str = ""

    @property
    def log(self) -> str:
        """Everything on stderr so far."""
        return "".join(self.lines)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)


@contextmanager
def running_server(*arguments: str | Path, **environment: str) -> Iterator[RunningServer]:
    """`sentence-experts serve` with these arguments, at a free port; it is ended afterwards."""
    command = [sys.executable, "-c", MAIN, "serve", *map(str, arguments), "--port", "0", "--device", "cpu"]
    variables: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    variables = {name: value for name, value in variables.items() if value}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables)
    server, begun = RunningServer(process), threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            server.lines.append(line)
            if found := re.search(r"^serving .* at (http://\S+)", line):
                server.url = found[1]
                begun.set()
        begun.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert begun.wait(SECONDS), f"not begun: {server.log}"
        assert server.url, server.log
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(SECONDS)

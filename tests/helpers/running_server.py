"""A server of models in a separate process."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from helpers.fresh_process import fresh

EXPERTS = ("crops", "neuro")  # of the tiny model that tests serve
TEXTS = ["Rice in drought", "Sleep and memory", "", "wheat " * 300, "Ein Satz über Ähren 🌾"]
SECONDS = 150  # for a busy machine to begin in, or to end


@dataclass
class RunningServer:
    """A `serve` process, and the file of what it has written to stderr."""

    process: BaseProcess
    stderr: Path
    url: str = ""

    @property
    def log(self) -> str:
        """Everything on stderr so far."""
        return self.stderr.read_text()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


@contextmanager
def running_server(*arguments: str | Path, files: int | None = None) -> Iterator[RunningServer]:
    """`sentence-experts serve` with these arguments, at a free port; it is ended afterwards.

    Args:
        arguments: models and flags.
        files: the number of files that the server may open, where that is less than usual.
    """
    with TemporaryDirectory() as folder:
        stderr = Path(folder) / "stderr"
        stderr.touch()
        process = fresh().Process(target=_serve, args=([*map(str, arguments)], stderr, files))
        process.start()
        server, until = RunningServer(process, stderr), time.monotonic() + SECONDS
        try:
            while not (begun := re.search(r"^serving .* at (http://\S+)", server.log, re.MULTILINE)):
                assert process.is_alive(), server.log
                assert time.monotonic() < until, f"not begun: {server.log}"
                time.sleep(0.02)
            server.url = begun[1]
            yield server
        finally:
            process.terminate()
            process.join(SECONDS)
            process.kill()
            process.join()


def _serve(arguments: list[str], stderr: Path, files: int | None) -> None:
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_APPEND), 2)
    if files is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    from sentence_experts.cli.main import main

    main(["serve", *arguments, "--port", "0", "--device", "cpu"])

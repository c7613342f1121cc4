"""Processes that have not imported this package, forked from one that has imported its libraries.

A process that imports torch, transformers and sentence-transformers anew takes seconds before its first line.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryDirectory

LIBRARIES = ["torch", "transformers", "sentence_transformers"]
SECONDS = 250  # for a busy machine


def fresh() -> ForkServerContext:
    """A server that such processes are forked from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    return context


def run_fresh(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `python -c CODE ARGUMENTS`, with the libraries imported before."""
    with TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        argv = ["-c", *map(str, arguments)]
        process = fresh().Process(target=_execute, args=(code, argv, files))
        process.start()
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        assert process.exitcode is not None
        return subprocess.CompletedProcess(argv, process.exitcode, *(file.read_text() for file in files))


def _execute(code: str, argv: list[str], files: Sequence[Path]) -> None:
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = argv
    assert not any(name.partition(".")[0] == "sentence_experts" for name in sys.modules)
    exec(compile(code, argv[0], "exec"), {"__name__": "__main__"})

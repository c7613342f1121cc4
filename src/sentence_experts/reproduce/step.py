"""A step of a recipe: a command line that a user could type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Step:
    """One command line, without the program's name.

    Attributes:
        makes: is there once the step is done.
        made_from: files and folders that it reads and that may change; when they do, it is run again.
        can_be_replaced: nothing is made from it, so it may be made anew with other settings.
        resumes: its command goes on in the folder of `makes`, so that this has to go before it can run anew.
    """

    command: tuple[str, ...]
    makes: Path
    made_from: tuple[Path, ...] = ()
    can_be_replaced: bool = False
    resumes: bool = False


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as command-line flags; None is left out, since it means the default."""
    written: list[str] = []
    for key, value in settings.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            written.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list | tuple):
            written += [f"--{flag}", ",".join(map(str, value))]
        elif value is not None:
            written += [f"--{flag}", str(value)]
    return written

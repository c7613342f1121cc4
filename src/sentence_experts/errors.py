"""The package's errors: every message says what is wrong, where, and what to do."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

MAX_NAME = 300  # characters of a name or value in a message
_NAME = re.compile(r"(?<!\w)'[^']*'(?!\w)|\S+")  # in quotes, or without spaces


class SentenceExpertsError(Exception):
    """Something the user can act on. The CLI prints it as one line and exits with `exit_code`."""

    exit_code = 1

    def __str__(self) -> str:
        return readable(super().__str__())


class UsageError(SentenceExpertsError):
    """The call itself is wrong: a bad or missing argument, or an output that is there already."""

    exit_code = 2


class InputError(SentenceExpertsError):
    """A file, record or field that cannot be used as it is."""


class RouteError(SentenceExpertsError, ValueError):
    """A text has no route, or one that the model does not know. The message lists the known routes."""


def readable(message: str) -> str:
    """Return a message as one line, without the middle of names and values that are too long to read."""
    # Names from files (columns, paths) may hold line breaks.
    return _NAME.sub(_shorten, " ".join(message.splitlines()))


def _shorten(name: re.Match[str]) -> str:
    text = name[0]
    if len(text) <= MAX_NAME:
        return text
    return f"{text[: MAX_NAME // 2]}... ({len(text):,} characters) ...{text[-MAX_NAME // 4 :]}"


def brief(error: BaseException, longest: int = 300) -> str:
    """Return another library's message as one line: its words, or its class if it has none."""
    return " ".join(str(error).split())[:longest] or type(error).__name__


def require(module: str, extra: str) -> ModuleType:
    """Import `module`; if it is missing, name the extra of this package that installs it.

    Raises:
        SentenceExpertsError: the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SentenceExpertsError(
            f"this needs {error.name or module}, which is not installed: "
            f'pip install "sentence-experts[{extra}]"'
        ) from error

"""The help text of a verb, readable at any width: each flag stands on a line of its own."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_WIDTH = 100
INDENT = " " * 6
TYPE_NAMES = {int: "INTEGER", float: "NUMBER", Path: "PATH"}


def help_text(command: Any, path: str) -> str:
    """What `--help` shows of a command.

    Args:
        command: the typer command.
        path: the words that call it, such as "sentence-experts corpus import".
    """
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join(["Usage:", *path.split(), *map(metavar, arguments), "[OPTIONS]"])
    blocks = [usage, *_paragraphs(command.help or "", width)]
    for title, parameters, name in (("Arguments:", arguments, metavar), ("Options:", options, flags)):
        entries = [_entry(name(each), each, width) for each in parameters]
        blocks += ["\n".join([title, *entries])] if entries else []
    return "\n\n".join(blocks) + "\n"


def metavar(parameter: Any) -> str:
    """What stands for an argument: MODEL."""
    return str(parameter.metavar or parameter.name.upper())


def flags(option: Any) -> str:
    """The flags of an option and what they take: "-k, --top-k INTEGER"."""
    names = ", ".join((*option.opts, *option.secondary_opts))
    kind = option.metavar or TYPE_NAMES.get(option.type_descriptor.annotation, "TEXT")
    return f"{names}" if option.is_bool_flag else f"{names} {kind}"


def description(parameter: Any) -> str:
    """What a flag or an argument means, on one line."""
    required = parameter.required and parameter.param_type_name == "option"
    return f"{' '.join((parameter.help or '').split())}{' (required)' if required else ''}"


def _entry(name: str, parameter: Any, width: int) -> str:
    meaning = _wrapped(description(parameter), width - len(INDENT))
    return "\n".join([f"  {name}", *(INDENT + line for line in meaning)])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """The paragraphs of a docstring, wrapped; indented blocks stay as they are."""
    for paragraph in textwrap.dedent(text).strip().split("\n\n"):
        yield paragraph if paragraph.startswith("    ") else "\n".join(_wrapped(paragraph, width))

"""Help texts of verbs and groups, readable at any width: each flag stands on its own line."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

MAX_WIDTH = 100
INDENT = " " * 6
TYPE_NAMES = {int: "INTEGER", float: "NUMBER", Path: "PATH"}


class Group(TyperGroup):
    """Commands, with plain help."""

    def meanings(self) -> Mapping[str, str]:
        """Command -> the first paragraph of its help."""
        return {name: (each.help or "").split("\n\n")[0] for name, each in self.commands.items()}

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write what `--help` shows."""
        formatter.write(help_text(self, ctx.command_path, self.meanings()))


def help_text(command: Any, path: str, commands: Mapping[str, str] = {}) -> str:
    """What `--help` shows of a command.

    Args:
        command: the typer command.
        path: the words that call it, such as "sentence-experts corpus import".
        commands: of a group: name -> what it does.
    """
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    words = ["COMMAND"] if commands else map(in_usage, arguments)
    blocks = [" ".join(["Usage:", *path.split(), *words, "[OPTIONS]"])]
    blocks += _paragraphs(command.help or "", width)
    if commands:
        column = max(map(len, commands)) + 3
        blocks.append("\n".join(["Commands:", *(_row(*each, column, width) for each in commands.items())]))
    for title, parameters, name in (("Arguments:", arguments, metavar), ("Options:", options, flags)):
        entries = [_entry(name(each), description(each, command.params), width) for each in parameters]
        blocks += ["\n".join([title, *entries])] if entries else []
    return "\n\n".join(blocks) + "\n"


def metavar(parameter: Any) -> str:
    """The placeholder of an argument: MODEL."""
    return str(parameter.metavar or parameter.name.upper())


def in_usage(argument: Any) -> str:
    """The placeholder of an argument in a usage line: MODEL, or [MODEL] if it may be left out."""
    return metavar(argument) if argument.required else f"[{metavar(argument)}]"


def flags(option: Any) -> str:
    """The flags of an option and what they take: "-k, --top-k INTEGER"."""
    names = ", ".join((*option.opts, *option.secondary_opts))
    kind = option.metavar or TYPE_NAMES.get(option.type_descriptor.annotation, "TEXT")
    return f"{names}" if option.is_bool_flag else f"{names} {kind}"


def description(parameter: Any, parameters: Iterable[Any]) -> str:
    """What a flag or an argument of a command with `parameters` means, on one line."""
    text = name_flags(with_default(" ".join((parameter.help or "").split()), parameter.default), parameters)
    return f"{text} (required)" if parameter.required and parameter.param_type_name == "option" else text


def with_default(text: str, default: Any) -> str:
    """The text, and the default if there is one."""
    if default is None or default is False or default in ([], {}, ()):
        return text
    return f"{text}. Default: {_shown(default)}"


def _entry(name: str, text: str, width: int) -> str:
    meaning = _wrapped(text, width - len(INDENT))
    return "\n".join([f"  {name}", *(INDENT + line for line in meaning)])


def _row(name: str, text: str, column: int, width: int) -> str:
    """A command and, from `column` on, what it does."""
    first, *others = _wrapped(text, width - column) or [""]
    return "\n".join([f"  {name}".ljust(column) + first, *(" " * column + line for line in others)])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """The paragraphs of a docstring, wrapped; indented blocks stay as they are."""
    for paragraph in textwrap.dedent(text).strip().split("\n\n"):
        yield paragraph if paragraph.startswith("    ") else "\n".join(_wrapped(paragraph, width))


def name_flags(message: str, parameters: Iterable[Any]) -> str:
    """The message with the flag of each parameter that it names in backticks.

    `` `top_k` `` becomes `--top-k`, `` `top_k=5` `` `--top-k 5`, and `` `packed=False` `` `--no-packed`.
    """
    known = {each.name: each for each in parameters}
    if known and "out" not in known:  # such as `auto-route`, which writes into a model's folder
        message = message.replace("give another `out`, or `overwrite`", "give `overwrite`")

    def flag(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"] and match["value"].strip("'")
        parameter = known.get(name)
        if parameter is None:
            return match[0]
        if parameter.param_type_name == "argument":
            return str(parameter.metavar or name.upper())
        positive = next((each for each in parameter.opts if each.startswith("--")), parameter.opts[0])
        if value in (None, "True"):
            return str(positive)
        if value == "False" and parameter.secondary_opts:
            return str(parameter.secondary_opts[0])
        return f"{positive} {value}"

    return re.sub(r"`(?P<name>[a-z_][a-z0-9_]*)(?:=(?P<value>[^`]*))?`", flag, message)


def _shown(default: Any) -> str:
    if default is True:
        return "on"
    if isinstance(default, Mapping):
        return " ".join(f"{name}={value}" for name, value in default.items())
    return ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)

"""Write the reference of the command line from the verbs and their settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from sentence_experts.cli.help import description, flags, in_usage, metavar
from sentence_experts.cli.main import VERBS, app_with_verbs

INTRODUCTION = """# Reference

Every verb, its arguments and its options. A setting has the same name everywhere: `--max-length` on the
command line, `max_length` in the YAML file that `--config` reads, and `max_length=` in Python.
"""

UNNAMED = "models"  # `evaluate MODEL...`, whose group also has `evaluate scores`


def reference() -> str:
    """The text of the page."""
    root = typer.main.get_command(app_with_verbs(*VERBS))
    sections = [INTRODUCTION, "\n".join(_contents(root))]
    sections += [_section(path, command) for path, command in _commands(root, ())]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _contents(root: Any) -> Iterator[str]:
    for path, command in _commands(root, ()):
        title = " ".join(path)
        yield f"- [`{title}`](#{title.replace(' ', '-')}): {_first_line(command)}"


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.list_commands(None):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        elif name == UNNAMED:
            yield path, command
        else:
            yield (*path, name), command


def _section(path: tuple[str, ...], command: Any) -> str:
    title = " ".join(path)
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    usage = " ".join(["sentence-experts", title, *map(in_usage, arguments), "[OPTIONS]"])
    text = (command.help or "").strip()
    blocks = [f"## {title}", f"`{usage}`", text]
    rows = [f"| `{metavar(each)}` | {_cell(description(each, command.params))} |" for each in arguments]
    rows += [f"| {_code(each)} | {_cell(description(each, command.params))} |" for each in options]
    blocks.append("\n".join(["| | |", "|---|---|", *rows]))
    return "\n\n".join(blocks)


def _code(option: Any) -> str:
    """The flags of an option, each in backticks, and what they take."""
    words = [f"`{word.rstrip(',')}`" + "," * word.endswith(",") for word in flags(option).split()]
    return " ".join(words).replace("|", "\\|")


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _first_line(command: Any) -> str:
    return _cell((command.help or "").strip().split("\n\n")[0])

"""Write the reference of the command line from the verbs and their settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from sentence_experts.cli.main import VERBS, app_with_verbs

INTRODUCTION = """# Reference

Every verb, its arguments and its options. A setting has the same name everywhere: `--max-length` on the
command line, `max_length` in the YAML file that `--config` reads, and `max_length=` in Python.
"""


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
        else:
            yield (*path, name), command


def _section(path: tuple[str, ...], command: Any) -> str:
    title = " ".join(path)
    context = typer.Context(command, info_name=f"sentence-experts {title}")
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    entries = [each.get_help_record(context) for each in command.params if each.name != "help"]
    rows = [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in entries]
    table = "\n".join(["| | |", "|---|---|", *rows])
    return "\n\n".join([f"## {title}", f"`{usage}`", (command.help or "").replace("\b", "").strip(), table])


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _first_line(command: Any) -> str:
    return _cell((command.help or "").strip().split("\n\n")[0])

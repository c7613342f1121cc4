"""README and docs are true: links, files, commands, the references."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import sentence_experts
from sentence_experts.cli.main import VERBS, app_with_verbs

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "src" / "sentence_experts"
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]


def bash_commands(text: str) -> Iterator[list[str]]:
    """The arguments of each `sentence-experts` command of the page's bash blocks."""
    for block in re.findall(r"```(?:bash|console)\n(.*?)```", text, flags=re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if "sentence-experts" not in line:  # what a command prints need not be words of a shell
                continue
            words = shlex.split(line, comments=True)
            if "sentence-experts" in words:
                yield words[words.index("sentence-experts") + 1 :]


def inline_commands(text: str) -> Iterator[list[str]]:
    """Verbs with flags in inline code, such as `train --loss argmax_target`."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", plain):
        words = code.removeprefix("sentence-experts ").split()
        if words and words[0] in VERBS and any(word.startswith("--") for word in words):
            yield words


@cache
def root_command() -> Any:
    return typer.main.get_command(app_with_verbs(*VERBS))


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that a line runs, and its arguments."""
    command = root_command()
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_flags_of_their_verbs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for words in bash_commands(text):
        if words not in (["demo"], ["..."]):
            command, arguments = command_of(words)
            command.make_context(words[0], arguments)  # parses, and runs nothing
    for words in inline_commands(text):
        command, arguments = command_of(words)
        known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        flags = {word.split("=")[0] for word in arguments if word.startswith("--")}
        assert flags <= known | {"--help"}, f"{' '.join(words)}: {flags - known}"


def anchors(page: Path) -> set[str]:
    """The names of the headings of a page, as links have them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
    for target in re.findall(r"\]\(([^):]*#[^)]+)\)", text):
        name, _, anchor = target.partition("#")
        assert anchor in anchors((page.parent / name) if name else page), target
    for path in re.findall(r"(?<![\w./-])([\w-]+(?:/[\w-]+)+\.(?:py|yaml|json))\b", text):
        assert any((root / path).exists() for root in (PACKAGE, REPOSITORY, page.parent)), path


def test_references_list_every_verb_and_every_public_name() -> None:
    reference, api = (
        runpy.run_path(str(REPOSITORY / "scripts" / f"write_{name}.py"))[name]()
        for name in ("reference", "api")
    )
    for words in (verb.split() for verb in VERBS):
        assert re.search(rf"^## {' '.join(words)}( |$)", reference, flags=re.MULTILINE), words
    for name in sentence_experts.__all__:
        assert name.startswith("_") or f"`{name}`" in api or f"### {name}" in api, name

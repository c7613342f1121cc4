"""Every code block of README and docs is checked, in the way of its language.

`python` runs, or says why not and where it is tested. `yaml` can be read. In `bash` and `console` each
command is known; `test_docs.py` parses those of this package. `pycon` and `py` are in the generated API
reference, whose examples `test_examples.py` runs. `text` is output, or a drawing.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import sentence_experts
from helpers.samples import make_pairs_folder, make_tiny_encoder, write_corpus

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]
LANGUAGES = ("python", "yaml", "bash", "console", "text")
# Commands of a shell in which nothing of this repository can be wrong.
SHELL = (".", "cd", "export", "git", "pre-commit", "LM")
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", flags=re.DOTALL)
ROUTES = ("cell_biology", "copd", "cvd", "genomics", "neuroscience")


class Block(NamedTuple):
    page: Path
    number: int
    language: str
    code: str
    reason: str
    """Why it is not run; empty if it is."""

    @property
    def name(self) -> str:
        return f"{self.page.name}-{self.number}"


def blocks(language: str) -> list[Block]:
    found = []
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
            if match["language"] == language:
                reason = (match["mark"] or "").partition("not run: ")[2]
                found.append(Block(page, number, language, match["code"], reason))
    return found


RUN = [block for block in blocks("python") if not block.reason]


@pytest.fixture(scope="module")
def prepared(minilm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the blocks name. A folder called minilm stands in for the base of that name."""
    folder = tmp_path_factory.mktemp("blocks")
    make_tiny_encoder(folder / "minilm", minilm)
    make_tiny_encoder(folder / "runs" / "experts" / "model", minilm, ROUTES)
    make_pairs_folder(folder / "pairs")
    write_corpus(folder / "corpus")
    return folder


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_python_runs(block: Block, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if block.page.name == "recipes.md":  # about libraries that need not be installed
        for module in re.findall(r"^(?:from|import) (\w+)", block.code, flags=re.MULTILINE):
            pytest.importorskip(module)
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    exec(
        compile(block.code, str(block.page), "exec"),
        {"__name__": "__main__", "sentence_experts": sentence_experts},
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_is_left_out(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    languages = [match["language"] for match in BLOCK.finditer(text)]
    assert len(re.findall(r"^\s*(?:```|~~~)", text, flags=re.MULTILINE)) == 2 * len(languages)
    assert set(languages) <= set(LANGUAGES)
    # No block by indentation.
    assert not re.findall(r"^(?:    |\t)(?!\s*[-*\d])", BLOCK.sub("", text), flags=re.MULTILINE)


def shell_commands(block: Block) -> list[list[str]]:
    """The words of each command of a block; of a console those after the prompt."""
    lines = block.code.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def extras(requirement: str) -> set[str]:
    return set(requirement.partition("[")[2].rstrip("]").split(",")) - {""}


@pytest.mark.parametrize("block", [*blocks("bash"), *blocks("console")], ids=lambda block: block.name)
def test_commands_are_known(block: Block) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for words in [] if block.reason else shell_commands(block):
        first = words[0].partition("=")[0]
        if first == "make":
            assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE), words
        elif first == "pip":
            assert extras(words[-1]) <= project["optional-dependencies"].keys(), words
        elif first in ("python", "pytest"):
            assert words[1].startswith("-") or (REPOSITORY / words[1]).exists(), words
        else:  # `sentence-experts` is parsed by test_docs.py
            assert first in SHELL or "/bin/" in first or "sentence-experts" in words, words


def test_what_is_not_run_says_where_it_is_tested_or_what_it_needs() -> None:
    reasons = [block.reason for block in blocks("python") if block.reason]
    assert len(RUN) >= len(reasons) / 2
    reasons += [block.reason for kind in ("bash", "console") for block in blocks(kind) if block.reason]
    for reason in reasons:
        for path in re.findall(r"tests/[\w/]+(?:\.py)?", reason):
            assert (REPOSITORY / path).exists(), path


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.name)
def test_yaml_can_be_read(block: Block) -> None:
    assert yaml.safe_load(block.code)

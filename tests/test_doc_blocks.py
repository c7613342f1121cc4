"""Every code block of README and docs: Python runs or says why not, commands and YAML can be parsed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import sentence_experts
from helpers.samples import make_pairs_folder, make_tiny_encoder, write_corpus

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", flags=re.DOTALL)
ROUTES = ("copd", "cvd", "genomics", "neuroscience")


class Block(NamedTuple):
    page: Path
    number: int
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
                found.append(Block(page, number, match["code"], reason))
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


def test_what_is_not_run_says_where_it_is_tested_or_what_it_needs() -> None:
    reasons = [block.reason for block in blocks("python") if block.reason]
    assert len(RUN) >= len(reasons) / 2
    for reason in reasons:
        for path in re.findall(r"tests/[\w/]+(?:\.py)?", reason):
            assert (REPOSITORY / path).exists(), path


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.name)
def test_yaml_can_be_read(block: Block) -> None:
    assert yaml.safe_load(block.code)

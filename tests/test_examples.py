"""The examples in docstrings and in docs/python-api.md run as they stand."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import shutil
from pathlib import Path

import pytest

import sentence_experts
from helpers.example_folder import fill

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    """A folder with what the examples name: articles, a corpus, pairs, a base, models, and texts."""
    folder = tmp_path_factory.mktemp("examples")
    fill(folder, minilm)
    return folder


@pytest.fixture
def example_folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, which is the working directory."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def examples() -> list[doctest.DocTest]:
    """The docstrings of public functions, classes and their methods that have `>>>` examples."""
    found: list[doctest.DocTest] = []
    for name in sentence_experts.__all__:
        value = getattr(sentence_experts, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            namespace = {each: getattr(sentence_experts, each) for each in sentence_experts.__all__}
            tests = doctest.DocTestFinder(recurse=inspect.isclass(value)).find(value, name, globs=namespace)
            found += [test for test in tests if test.examples]
    return found


def modules_with_examples() -> list[str]:
    """Names of the modules in which something has `>>>` examples."""
    source = REPOSITORY / "src"
    files = [file for file in source.rglob("*.py") if ">>> " in file.read_text(encoding="utf-8")]
    return sorted(".".join(file.relative_to(source).with_suffix("").parts) for file in files)


# It exports a graph of MiniLM; tests/models/export does so with a smaller base.
SLOW = {"sentence_experts.models.onnx_encoder"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in modules_with_examples()],
)
def test_examples_of_what_is_not_public(name: str, example_folder: Path) -> None:
    messages: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for example in doctest.DocTestFinder().find(importlib.import_module(name)):
        if example.name.removeprefix(f"{name}.").partition(".")[0] not in sentence_experts.__all__:
            runner.run(example, out=messages.append)
    assert runner.failures == 0, "".join(messages)


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_docstring_example(example: doctest.DocTest, example_folder: Path) -> None:
    messages: list[str] = []
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=options)
    runner.run(example, out=messages.append)
    assert runner.failures == 0, "".join(messages)


def test_the_whole_job_of_the_docs(example_folder: Path) -> None:
    text = (REPOSITORY / "docs" / "python-api.md").read_text(encoding="utf-8")
    job = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    assert len([line for line in job.splitlines() if line.strip()]) <= 20
    # A base of two small blocks: what the calls do is tested elsewhere with the real one.
    job = job.replace('"minilm"', '"base"')
    exec(compile(job, "docs/python-api.md", "exec"), {"__name__": "__main__"})
    assert (example_folder / "my-model" / "modules.json").is_file()

"""The examples in the docstrings of public functions and in docs/python-api.md run as they stand."""

from __future__ import annotations

import doctest
import inspect
import re
import shutil
from pathlib import Path

import pytest

import sentence_experts
from helpers.samples import make_tiny_encoder
from helpers.small_language_models import make_language_model
from sentence_experts.corpus.simulate import simulate_corpus

REPOSITORY = Path(__file__).resolve().parent.parent
MATERIAL = Path(sentence_experts.__file__).parent / "recipes" / "material"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, minilm: str) -> Path:
    """A folder with what the examples name: articles, a corpus, pairs, a base, models, and texts."""
    folder = tmp_path_factory.mktemp("examples")
    simulate_corpus(folder / "articles", articles=120, seed=0)
    shutil.copy(MATERIAL / "simulated_domains.yaml", folder / "domains.yaml")
    sentence_experts.import_corpus([folder / "articles"], folder / "corpus", workers=1)
    sentence_experts.compile_pairs(
        folder / "corpus",
        out=folder / "pairs",
        domains=folder / "domains.yaml",
        unit="title",
        split="article",
        fractions=[0.5, 0.2, 0.3],
        max_train_per_domain=32,
        max_eval_per_domain=16,
    )
    make_tiny_encoder(folder / "base", minilm)
    pairs = sentence_experts.Pairs.open(folder / "pairs")
    make_tiny_encoder(folder / "model", minilm, tuple(pairs.domains))
    make_language_model(folder / "language-model", "olmoe")
    (folder / "texts.txt").write_text("Drought in rice\nSleep and memory\nWheat rust\n", encoding="utf-8")
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

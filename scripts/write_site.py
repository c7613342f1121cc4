"""Write the sources of the website to build/docs: the pages, the measurements and the API reference."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentence_experts

REPOSITORY = Path(__file__).resolve().parent.parent
SITE = REPOSITORY / "build" / "docs"
MEASUREMENTS = "measurements"
# Pages of the project that stand beside the README.
PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "LICENSE")
KINDS = {"functions": inspect.isfunction, "classes": inspect.isclass}


def write_site() -> None:
    """Copy all pages; links between them hold within the site."""
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(REPOSITORY / "docs", SITE)
    for page in SITE.rglob("*.md"):
        _write(page, _moved(page.read_text(encoding="utf-8")))
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    _write(SITE / "index.md", _moved(readme.replace("](docs/", "](")))
    for name in PROJECT:
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        page = f"```text\n{text}```\n" if name == "LICENSE" else _moved(text.replace("](docs/", "]("))
        _write(SITE / f"{Path(name).stem}.md", page)
    folder = REPOSITORY / "benchmarks" / "results"
    results = sorted(folder.glob("*.md"))
    for result in results:
        _write(SITE / MEASUREMENTS / result.name, result.read_text(encoding="utf-8"))
    _write(SITE / MEASUREMENTS / "index.md", "\n".join(_contents(results)))
    _write(SITE / "api.md", api())


def _moved(text: str) -> str:
    """The text of a page with links to what is elsewhere in the site."""
    text = re.sub(r"\]\((?:\.\./)?benchmarks/results/", f"]({MEASUREMENTS}/", text)
    text = re.sub(r"\]\((?:\.\./)?benchmarks/results\)", f"]({MEASUREMENTS}/index.md)", text)
    text = re.sub(r"\]\(LICENSE\)", "](LICENSE.md)", text)
    # Folders and files of the repository have no page.
    return re.sub(r"\[([^\]]*)\]\((?:\.\./(?!benchmarks)|serve/)[^)]*\)", r"\1", text)


def _contents(results: list[Path]) -> Iterator[str]:
    yield "# Measurements\n\nWhat the scripts in `benchmarks/` wrote, each with its command and machine.\n"
    for result in results:
        title = result.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        yield f"- [{title}]({result.name})"


def api() -> str:
    """The public functions and classes with their docstrings."""
    public = {name: getattr(sentence_experts, name) for name in sentence_experts.__all__ if name[0] != "_"}
    settings = [name for name in public if name.endswith("Config")]
    blocks = [
        "# API reference",
        "The public functions and classes, from their docstrings. The settings of the classes "
        + ", ".join(f"`{name}`" for name in settings)
        + " are those of the verbs in the [reference](reference.md).",
    ]
    for kind, is_kind in KINDS.items():
        blocks.append(f"## {kind.capitalize()}")
        for name, value in public.items():
            if is_kind(value) and name not in settings:
                blocks += _entry(name, value)
    return "\n\n".join(blocks) + "\n"


def _entry(name: str, value: Any, level: int = 3) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    if inspect.isclass(value) and issubclass(value, Exception):
        signature = ""
    else:
        signature = str(inspect.signature(value)).replace("'", "")
        yield f"```text\n{name}{signature}\n```"
    yield _text(inspect.getdoc(value) or "")
    if inspect.isclass(value) and not issubclass(value, Exception):
        for method, function in vars(value).items():
            function = getattr(function, "__func__", function)
            if method[0] != "_" and inspect.isfunction(function) and function.__doc__:
                yield from _entry(f"{name}.{method}", function, level + 1)


def _text(docstring: str) -> str:
    """A docstring as Markdown: its first sentences as text, its sections as they stand."""
    text, found, sections = docstring.partition("\n\nArgs:")
    if not found:
        match = re.search(r"\n\n(Raises|Returns|Attributes|Example|Yields):", docstring)
        place = match.start() if match else len(docstring)
        text, sections = docstring[:place], docstring[place:]
    else:
        sections = f"Args:{sections}"
    sections = sections.strip("\n")
    return f"{text}\n\n```text\n{sections}\n```" if sections else text


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_site()

"""Write the sources of the website to build/docs: the pages, both references and the measurements."""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SITE = REPOSITORY / "build" / "docs"
MEASUREMENTS = "measurements"
# Pages of the project that stand beside the README.
PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "LICENSE")


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
    for name in ("reference", "api"):
        _write(SITE / f"{name}.md", runpy.run_path(str(Path(__file__).with_name(f"write_{name}.py")))[name]())
    folder = REPOSITORY / "benchmarks" / "results"
    results = sorted(folder.glob("*.md"))
    for result in results:
        text = result.read_text(encoding="utf-8").replace("](../../docs/", "](../")
        _write(SITE / MEASUREMENTS / result.name, text)
    _write(SITE / MEASUREMENTS / "index.md", "\n".join(_contents(results)))


def _moved(text: str) -> str:
    """The text of a page with links to what is elsewhere in the site."""
    # A page in a folder of the docs has one "../" more than one beside it.
    text = re.sub(
        r"\]\(((?:\.\./)*)benchmarks/results(/|\))",
        lambda found: (
            f"]({found[1].removeprefix('../')}{MEASUREMENTS}/{'index.md)' if found[2] == ')' else ''}"
        ),
        text,
    )
    text = re.sub(r"\]\(LICENSE\)", "](LICENSE.md)", text)
    # Folders and files of the repository have no page.
    return re.sub(r"\[([^\]]*)\]\((?:\.\./(?!benchmarks|images|measurements)|serve/)[^)]*\)", r"\1", text)


def _contents(results: list[Path]) -> Iterator[str]:
    yield "# Measurements\n\nWhat the scripts in `benchmarks/` wrote, each with its command and machine.\n"
    for result in results:
        title = result.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        yield f"- [{title}]({result.name})"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_site()

"""Count the functions of this package that each main job passes, and the lines that it imports.

    python scripts/count_functions.py

prints the table of docs/design.md: small runs in one process, on made-up texts and the pinned MiniLM.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import sentence_experts as se
from sentence_experts.corpus.simulate import simulate_corpus

PACKAGE = str(Path(se.__file__).parent)


def count(job: Callable[[], Any]) -> tuple[int, int]:
    """Return how many functions and files of the package a job passes at least once."""
    passed = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            passed.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(None)
    functions = {each for each in passed if "<" not in each[1].rpartition(".")[2]}
    return len(functions), len({file for file, _ in functions})


def lines_imported() -> int:
    """Return the lines of the package's modules that are imported now."""
    files = {str(getattr(module, "__file__", None)) for module in list(sys.modules.values())}
    return sum(Path(file).read_text("utf-8").count("\n") for file in files if file.startswith(PACKAGE))


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "texts.txt").write_text("Rice in drought.\nSleep and memory.\n")
        print("| job | functions | files |\n|---|---:|---:|")

        def show(name: str, job: Callable[[], Any]) -> None:
            print("| {} | {} | {} |".format(name, *count(job)))

        show("encode a file", lambda: se.encode("minilm", place / "texts.txt", out=place / "vectors.npy"))
        imported = lines_imported()
        articles = simulate_corpus(place / "articles", seed=0, articles=480)
        one = next(path for path in sorted(articles.rglob("*")) if path.suffix in (".xml", ".nxml"))
        show("import one JATS article", lambda: se.import_corpus(one, place / "one", workers=1))
        se.import_corpus(articles, place / "corpus", workers=1)
        rules = place / "domains.yaml"
        se.suggest_domains(place / "corpus", out=rules)
        show(
            "compile pairs",
            lambda: se.compile_pairs(place / "corpus", out=place / "pairs", domains=rules, split="random"),
        )
        show("evaluate", lambda: se.evaluate("minilm", place / "pairs", out=place / "results", bootstrap=20))
        print(f"\nLines imported to encode a file: {imported:,}")


if __name__ == "__main__":
    main()

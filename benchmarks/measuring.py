"""What the benchmarks of speed share: texts, ways taken in turn, ratios inside a round, hardware, results."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tarfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from study import DATA, ELIFE, RESULTS

PACKAGES = ("torch", "transformers", "sentence-transformers")


def elife_texts(count: int) -> tuple[list[str], list[str]]:
    """Titles and abstracts of eLife articles, `count` of each."""
    from sentence_experts.corpus.formats.articles import read_articles
    from sentence_experts.corpus.paper import Paper

    titles: list[str] = []
    abstracts: list[str] = []
    with tarfile.open(DATA / ELIFE) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith((".xml", ".nxml")) else None
            for article in read_articles(content.read()) if content else ():
                if isinstance(article, Paper) and article.title and article.abstract:
                    titles.append(article.title)
                    abstracts.append(article.abstract)
            if len(titles) >= count:
                break
    return titles[:count], abstracts[:count]


def in_turn(
    ways: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each way in each round, after one that is not counted; the ways alternate."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            started = clock()
            way()
            if number:
                seconds[name].append(clock() - started)
    return seconds


def ratio(seconds: Mapping[str, list[float]], of: str, to: str) -> float:
    """The median over rounds of how many times as long `of` takes as `to`."""
    return statistics.median(a / b for a, b in zip(seconds[of], seconds[to], strict=True))


def gemm_flops(threads: int, tokens: int = 2048, width: int = 384, inner: int = 1536) -> float:
    """Floating-point operations a second of a matrix multiplication of an MLP's shape: what is at most there.

    With several threads, each multiplies matrices of its own, as cores that take a batch each.
    """
    from concurrent.futures import ThreadPoolExecutor

    import torch

    left, right = torch.randn(tokens, width), torch.randn(width, inner)
    before = torch.get_num_threads()

    def many(repeats: int) -> None:
        torch.set_num_threads(1)
        for _ in range(repeats):
            left @ right

    repeats = 100
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(many, [5] * threads))
        best = 0.0
        for _ in range(3):
            started = time.perf_counter()
            list(pool.map(many, [repeats] * threads))
            done = threads * repeats * 2 * tokens * width * inner
            best = max(best, done / (time.perf_counter() - started))
    torch.set_num_threads(before)
    return best


def hardware() -> str:
    """The processor and how many cores there are."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return f"{line.partition(':')[2].strip()}, {os.cpu_count()} cores"
    return f"{platform.machine()}, {os.cpu_count()} cores"


def versions(*more: str) -> dict[str, str]:
    """Of the libraries that decide the figures."""
    return {name: version(name) for name in (*PACKAGES, *more)} | {"python": platform.python_version()}


def write(name: str, result: dict, text: str) -> None:
    """results/NAME.json and .md; prints the text."""
    RESULTS.mkdir(exist_ok=True)
    made = {**result, "hardware": hardware(), "versions": result.get("versions") or versions()}
    (RESULTS / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    told = ", ".join(f"{library} {number}" for library, number in made["versions"].items())
    whole = f"{text}\n\n{made['hardware']}; {told}.\n"
    (RESULTS / f"{name}.md").write_text(whole, encoding="utf-8")
    print(whole)


def p_text(value: float) -> str:
    """A p-value in two digits; below 0.0001 its size means nothing, as the tests are approximate."""
    return f"{value:.2g}" if value >= 0.0001 else "<0.0001"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, its first column to the left."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

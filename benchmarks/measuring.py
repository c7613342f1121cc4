"""Shared by all benchmarks: data, texts, options, ways taken in turn, ratios inside a round, results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DATA = Path(os.environ.get("SENTENCE_EXPERTS_DATA", HERE.parent.parent / "shared" / "data"))
ELIFE, CROPS = "corpora/elife_jats.tar.xz", "corpora/pmc_crops_jats.tar.xz"
BASE = "minilm"
PACKAGES = ("torch", "transformers", "sentence-transformers")


def options(doc: str | None, **defaults: Any) -> argparse.Namespace:
    """Read the command line of a benchmark; its docstring is the help.

    Args:
        doc: the docstring.
        **defaults: option -> default: a list takes several values, False is a switch, a type has no default.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag, how = f"--{name.replace('_', '-')}", {"default": None, "type": default}
        if default is False:
            how = {"action": "store_true"}
        elif isinstance(default, list):
            how = {"nargs": "+", "type": type(default[0]) if default else str, "default": default}
        elif not isinstance(default, type):
            how = {"type": type(default), "default": default}
        parser.add_argument(flag, **how)  # type: ignore[arg-type]
    return parser.parse_args()


def resident() -> dict[str, float]:
    """Bytes of this process in memory: with the pages of mapped files, and without them."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    sizes = {line.split()[0]: 1024.0 * int(line.split()[1]) for line in lines if line.endswith(" kB")}
    return {"all": sizes["VmRSS:"], "own": sizes["RssAnon:"]}


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

    With several threads, each multiplies separate matrices, as cores that take a batch each.
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
    """Return the versions of the libraries that decide the figures."""
    return {name: version(name) for name in (*PACKAGES, *more)} | {"python": platform.python_version()}


def write(name: str, result: Mapping[str, Any], text: str, results: Path = RESULTS) -> None:
    """Write NAME.json and NAME.md into the folder of results, and print the text."""
    made = {**result, "hardware": hardware(), "versions": result.get("versions") or versions()}
    (results / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    told = ", ".join(f"{library} {number}" for library, number in made["versions"].items())
    whole = f"{text}\n\n{made['hardware']}; {told}.\n"
    (results / f"{name}.md").write_text(whole, encoding="utf-8")
    print(whole)


def verdicts(outcomes: Sequence[Any], names: Sequence[str], **more: Callable[[list[Any]], object]) -> str:
    """A Markdown table: the number of outcomes with each verdict, in each of their `groups` and in all.

    `names` are "tried", and the verdicts; `more` columns are computed from the outcomes of a row.
    """
    groups = dict.fromkeys(name for outcome in outcomes for name in outcome.groups)
    rows = {name: [each for each in outcomes if name in each.groups] for name in sorted(groups)}
    cells = [
        [name, f"{len(own):,}", *(f"{sum(each.verdict == one for each in own):,}" for one in names[1:])]
        + [str(compute(own)) for compute in more.values()]
        for name, own in {**rows, "all": list(outcomes)}.items()
    ]
    return table(["", *names, *more], cells)


def p_text(value: float) -> str:
    """A p-value in two digits; below 0.0001 its size means nothing, as the tests are approximate."""
    return f"{value:.2g}" if value >= 0.0001 else "<0.0001"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, its first column to the left."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

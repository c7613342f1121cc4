"""How soon the search page has its first results: 100,000 made-up papers, five routes, made-up vectors.

The encoder is the real all-MiniLM-L6-v2 with five experts, in a server process; the papers' vectors are drawn
at random, which a search through all of them cannot tell from real ones. Each query is a new one. Measured
are whole answers over HTTP, as the page asks for them, and, where there is a Chromium, the time from the key
to the lists on the screen.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import pyarrow as pa

from measuring import options, table, versions, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

QUERY_WORDS, CITED, UNCOUNTED = 9, 10, 3
NAMES = ("one", "two", "three", "four", "five", "six", "seven", "eight")
KINDS: dict[str, dict[str, Any]] = {
    "a query": {},
    "a query, years and type": {"year": "2005..2010", "types": ["review-article"]},
    "a query, by words too": {"hybrid": True},
    "more like a paper": {},
}


def make_corpus(folder: Path, count: int, words: list[str]) -> None:
    """A finished corpus of `count` made-up papers with abstracts of 120 words, and citations."""
    from sentence_experts.corpus.corpus_folder import CITATIONS_SCHEMA, FORMAT, FORMAT_VERSION, PAPERS_SCHEMA
    from sentence_experts.storage import sha256_file, write_json, write_parquet

    dice = random.Random(0)
    ids = [f"doi:10.5555/{n:07}" for n in range(count)]
    columns: dict[str, Any] = {name: [None] * count for name in PAPERS_SCHEMA.names}
    sentence = lambda: f"{drawn_words(dice, words, 15).capitalize()}."  # noqa: E731
    columns |= {
        "paper_id": ids,
        "doi": [each.removeprefix("doi:") for each in ids],
        "title": [drawn_words(dice, words, 10).capitalize() for _ in ids],
        "abstract": [" ".join(sentence() for _ in range(8)) for _ in ids],
        "year": [dice.randrange(1980, 2026) for _ in ids],
        "article_type": [dice.choice(("research-article", "review-article")) for _ in ids],
        "journal": [f"Journal {dice.randrange(200)}" for _ in ids],
        "retracted": [False] * count,
    }
    write_parquet(folder / "papers.parquet", pa.table(columns, schema=PAPERS_SCHEMA))
    links = {
        "citing": [each for each in ids for _ in range(CITED)],
        "cited": [ids[dice.randrange(count)] for _ in range(CITED * count)],
        "cited_title": [None] * (CITED * count),
        "cited_year": [None] * (CITED * count),
    }
    write_parquet(folder / "citations.parquet", pa.table(links, schema=CITATIONS_SCHEMA))
    tables = {name: sha256_file(folder / name) for name in ("papers.parquet", "citations.parquet")}
    noted = {"format": FORMAT, "format_version": FORMAT_VERSION, "tables": tables}
    write_json(folder / "manifest.json", noted)


def prepare(folder: Path, papers: int, routes: int, words: list[str]) -> None:
    """A corpus and its words, a model of `routes` experts, and vectors for each of them."""
    import sentence_experts
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.encoding.encoder import BatchEncoder
    from sentence_experts.retrieval.index import store_vectors, vector_settings
    from sentence_experts.retrieval.keywords import keyword_index

    make_corpus(folder / "corpus", papers, words)
    sentence_experts.extend("minilm", experts=NAMES[:routes], out=folder / "model")
    encoder = BatchEncoder(sentence_experts.load(folder / "model", device="cpu"))
    corpus = CorpusFolder.open(folder / "corpus")
    drawn = np.random.default_rng(0)
    for route in NAMES[:routes]:
        vectors = drawn.standard_normal((papers, encoder.dimension), dtype=np.float32)
        store_vectors(corpus, vector_settings(encoder, route, "title+abstract"), "m", vectors)
    keyword_index(corpus, "title+abstract")  # kept beside the corpus, as the vectors are


def timed(ask: Callable[[int], object], rounds: int) -> list[float]:
    """Milliseconds of each of `rounds` calls after some that are not counted."""
    seconds = []
    for number in range(rounds + UNCOUNTED):
        started = time.perf_counter()
        ask(number)
        seconds.append(1000 * (time.perf_counter() - started))
    return seconds[UNCOUNTED:]


def cpu_seconds(process: int) -> float:
    """Of a process so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def over_http(
    url: str, process: int, rounds: int, words: list[str]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Milliseconds of each kind of search, and of one list's best sentences; CPU time of each."""
    dice = random.Random(1)
    found: dict[str, list[float]] = {}
    cpu: dict[str, float] = {}
    with httpx.Client(base_url=url, timeout=120) as client:

        def ask(path: str, body: dict[str, Any]) -> Any:
            answer = client.post(path, json=body)
            answer.raise_for_status()
            return answer.json()

        for kind, more in KINDS.items():
            like, before = kind.startswith("more"), cpu_seconds(process)

            def one(number: int, more: dict[str, Any] = more, like: bool = like) -> Any:
                what = {"like": [f"10.5555/{number:07}"]} if like else {"query": query(dice, words)}
                return ask("/search", what | more)

            found[kind] = timed(one, rounds)
            cpu[kind] = 1000 * (cpu_seconds(process) - before) / (rounds + UNCOUNTED)
        before = cpu_seconds(process)
        found["ten best sentences"] = timed(
            lambda n: ask("/search/sentences", {
                "query": query(dice, words), "route": "m:one",
                "papers": [f"10.5555/{each:07}" for each in range(10 * n, 10 * n + 10)],
            }),
            rounds // 4,
        )  # fmt: skip
        cpu["ten best sentences"] = 1000 * (cpu_seconds(process) - before) / (rounds // 4 + UNCOUNTED)
    return found, cpu


def in_browser(url: str, rounds: int, words: list[str]) -> list[float]:
    """Milliseconds from Enter to the lists on the screen, one query at a time; empty without Chromium."""
    from helpers.browser import PATH, browser

    if PATH is None:
        return []
    dice = random.Random(2)
    with browser() as running:
        page = running.new_page()
        page.set_default_timeout(120_000)
        page.goto(url)
        page.wait_for_selector("#routes input")

        milliseconds = []
        for _ in range(rounds // 4 + UNCOUNTED):
            text = query(dice, words)
            page.wait_for_timeout(2000)  # until the sentences of the last answer are shown, too
            page.fill("#query", text)
            started = time.perf_counter()
            page.press("#query", "Enter")
            page.wait_for_selector(f"#results[data-address='?{urlencode({'q': text})}'] .hit")
            milliseconds.append(1000 * (time.perf_counter() - started))
        return milliseconds[UNCOUNTED:]


def vocabulary() -> list[str]:
    """20,000 words, the terms of the simulated corpus first."""
    from sentence_experts.corpus.simulate import TOPICS

    terms = {word for topics in TOPICS.values() for topic in topics for word in topic.split()}
    return [*sorted(terms), *(f"term{n}" for n in range(20_000 - len(terms)))]


def drawn_words(dice: random.Random, words: list[str], count: int) -> str:
    """Words as frequent as in a language: the first ones often, the last ones hardly ever (Zipf)."""
    places = (int(len(words) ** dice.random()) - 1 for _ in range(count))
    return " ".join(words[place] for place in places)


def query(dice: random.Random, words: list[str]) -> str:
    """A query of nine words."""
    return drawn_words(dice, words, QUERY_WORDS)


def main() -> None:
    given = options(__doc__, papers=100_000, routes=5, rounds=40, folder=Path)
    from helpers.running_server import running_server

    words = vocabulary()
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        if not (folder / "model").exists():
            prepare(folder, given.papers, given.routes, words)
        began = time.perf_counter()
        with running_server(f"m={folder / 'model'}", "--corpus", folder / "corpus") as server:
            started = time.perf_counter() - began
            found, cpu = over_http(server.url, server.process.pid, given.rounds, words)
            found["in Chromium, to the lists"] = in_browser(server.url, given.rounds, words)
    load = os.getloadavg()[0]
    of_server = lambda kind: [cpu[kind]] if kind in cpu else []  # noqa: E731
    rows = [
        [kind, *(f"{value:.0f}" for value in (*np.quantile(each, [0.5, 0.95, 0]), *of_server(kind)))]
        for kind, each in found.items()
        if each
    ]
    text = f"""# First results of the search page

`python benchmarks/search_page.py`: {given.papers:,} made-up papers, {given.routes} routes (the experts of one
all-MiniLM-L6-v2), ten papers per route. A search has the lists, the ranks under all routes, years, citations
and the map. Milliseconds; the server was ready after {started:.1f} s, with vectors that were there before.
One-minute load of the machine at the end: {load:.1f}.

{table(["", "median", "95%", "least", "CPU of the server"], rows)}"""
    settings = {"papers": given.papers, "routes": given.routes, "rounds": given.rounds}
    result = {
        "settings": settings,
        "milliseconds": found,
        "server_cpu_ms": cpu,
        "ready_seconds": started,
        "load": load,
    }
    write("search_page", result | {"versions": versions()}, text)


if __name__ == "__main__":
    main()

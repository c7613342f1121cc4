"""Time and memory from a heavy-tailed citation graph to co-cited pairs, compared with hand-written SQL.

    python benchmarks/co_citation.py [--citations 1000000 10000000 100000000] [--memory 4GB] [--threads 2]
                                     [--rounds 3 3 2] [--folder DIR] [--ways capped lists join]
                                     [--results NAME]

The graph is drawn with a seed: reference lists of log-normal length with a few reviews that cite thousands,
works cited by a power law, a domain of 75,000 papers with abstracts that 5% of all papers cite first of all.
It is written as a corpus, and co-cited pairs of the domain with a count of at least 2 are made of it: by the
package (from the corpus to the pairs in memory; the domain is what has an abstract, so no rules are applied),
and by two programs of SQL for the same DuckDB with the same limits: a join of the citations with themselves,
and the best that we could write, with lists; the pairs in order, on which a dataset's bytes depend. Each runs
in a separate process, ways alternate, and all must give the same pairs. Memory is the largest resident set
of the process, as the kernel counts it; the disk is the largest size of the engine's temporary files, sampled
twice a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from measuring import HERE, options, table, write
from sentence_experts.corpus.corpus_folder import (
    CITATIONS,
    CITATIONS_SCHEMA,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    PAPERS,
    PAPERS_SCHEMA,
)
from sentence_experts.storage import read_json, write_json, write_stream

if TYPE_CHECKING:
    from sentence_experts.pairs.graph import LinkGraph

DOMAIN = 75_000
# Lengths of reference lists: log-normal, as in real articles, and a few reviews that cite thousands.
MEDIAN_REFERENCES, SPREAD = 24, 0.85
HUB_SHARE, HUB_REFERENCES = 1e-4, (1_000, 5_000)
# Shares of papers that cite the domain first of all, and of their references that lie in it.
HOME_SHARE, AT_HOME = 0.05, 0.7
# A work of rank r among n is cited in proportion to (r/n)**(1/SKEW - 1).
SKEW = 3.0
# The same literature at every size: more of its papers cite.
WORKS = 10_000_000
IDS = 90_000_000
ROWS_AT_ONCE = 2_000_000
WORDS = np.array(["lung", "cohort", "airway", "trial", "smoking", "cells", "risk", "therapy", "gene", "mice"])


def ids(works: np.ndarray) -> pa.Array:
    """`pmid:` ids of eight digits, so that works of neighbouring numbers have ids far apart."""
    return pc.binary_join_element_wise("pmid:", pa.array(numbers(works)).cast(pa.string()), "")


def numbers(works: np.ndarray) -> np.ndarray:
    """The works' numbers in PubMed, in whose order their ids are, too."""
    return 10_000_000 + (works.astype(np.int64) * 48_271_213) % IDS


class Graph:
    """Who cites how many works, drawn once; which works they are is drawn while the table is written."""

    def __init__(self, citations: int, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        mean = MEDIAN_REFERENCES * np.exp(SPREAD**2 / 2) + HUB_SHARE * np.mean(HUB_REFERENCES)
        papers = int(citations / mean)
        self.works = max(WORKS, papers)
        # The works of the domain are numbers 0..DOMAIN-1, and some of them cite too.
        citing = self._rng.choice(self.works, size=papers, replace=False)
        self.citing = citing[np.argsort(numbers(citing))]
        lengths = np.exp(self._rng.normal(np.log(MEDIAN_REFERENCES), SPREAD, papers))
        hubs = self._rng.random(papers) < HUB_SHARE
        lengths[hubs] = self._rng.integers(*HUB_REFERENCES, hubs.sum())
        lengths *= citations / lengths.sum()
        self.lengths = np.maximum(lengths.astype(np.int64), 1)
        self.at_home = self._rng.random(papers) < HOME_SHARE

    def citations(self) -> Iterator[pa.RecordBatch]:
        """The table of citations, ordered by citing paper."""
        ends = np.cumsum(self.lengths)
        first = 0
        while first < len(ends):
            before = ends[first - 1] if first else 0
            last = max(int(np.searchsorted(ends, before + ROWS_AT_ONCE)), first + 1)
            lengths = self.lengths[first:last]
            citing = np.repeat(self.citing[first:last], lengths)
            home = np.repeat(self.at_home[first:last], lengths) & (self._rng.random(len(citing)) < AT_HOME)
            span = np.where(home, DOMAIN, self.works)
            # Abroad, the most cited works are spread over all numbers and not those of the domain.
            rank = (span * self._rng.random(len(citing)) ** SKEW).astype(np.int64)
            cited = np.where(home, rank, (rank * 7_919 + DOMAIN) % self.works)
            nothing = pa.nulls(len(citing))
            columns = [ids(citing), ids(cited), nothing.cast(pa.string()), nothing.cast(pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, schema=CITATIONS_SCHEMA)
            first = last

    def papers(self) -> Iterator[pa.RecordBatch]:
        """The table of papers: all that cite, and the domain, which alone has abstracts."""
        works = np.union1d(self.citing, np.arange(DOMAIN))
        works = works[np.argsort(numbers(works))]
        for part in np.array_split(works, max(len(works) // ROWS_AT_ONCE, 1)):
            inside = part < DOMAIN
            words = WORDS[self._rng.integers(0, len(WORDS), (3, len(part)))]
            texts = pc.binary_join_element_wise(*(pa.array(row) for row in words), ids(part), " ")
            none = {field.name: pa.nulls(len(part), field.type) for field in PAPERS_SCHEMA}
            columns = none | {
                "paper_id": ids(part),
                "title": texts,
                "abstract": pc.if_else(pa.array(inside), texts, None),
                "year": pa.array(2000 + part % 20, pa.int32()),
                "retracted": pa.array(np.zeros(len(part), bool)),
            }
            yield from pa.Table.from_arrays(list(columns.values()), schema=PAPERS_SCHEMA).to_batches()


def write_graph(folder: Path, citations: int, seed: int = 0) -> None:
    """A corpus folder with such a graph."""
    graph = Graph(citations, seed)
    folder.mkdir(parents=True, exist_ok=True)
    write_stream(folder / PAPERS, graph.papers(), PAPERS_SCHEMA)
    write_stream(folder / CITATIONS, graph.citations(), CITATIONS_SCHEMA)
    counts = {"citations": int(graph.lengths.sum())}
    manifest = {"format": FORMAT, "format_version": FORMAT_VERSION, "counts": counts, "tables": {}}
    write_json(folder / MANIFEST, manifest)


LEAST = 2
# The file of pairs: what the ways put their temporary files beside.
SPILLED = "spilled"
OURS, CAPPED, JOIN, LISTS = "ours", "ours, --max-references 500", "SQL, self-join", "SQL, lists"
NUMBERED = """CREATE TEMP TABLE domain AS
SELECT paper_id, (row_number() OVER (ORDER BY paper_id) - 1)::INT AS work FROM '{papers}'
WHERE abstract IS NOT NULL"""
PAIRS_OF_LISTS = """COPY (SELECT "left", "right", count(*) AS "count" FROM (
    SELECT "left", unnest(works[place + 1:]) AS "right" FROM (
        SELECT works, unnest(works) AS "left", generate_subscripts(works, 1) AS place FROM (
            SELECT list_sort(list(DISTINCT work)) AS works FROM '{citations}' JOIN domain ON cited = paper_id
            WHERE citing <> cited GROUP BY citing HAVING count(*) > 1)))
GROUP BY ALL HAVING count(*) >= 2 ORDER BY 1, 2) TO '{out}'"""
JOINED = """CREATE TEMP TABLE kept AS SELECT dense_rank() OVER (ORDER BY citing) AS article, work FROM (
    SELECT DISTINCT citing, work FROM '{citations}' JOIN domain ON cited = paper_id WHERE citing <> cited)"""
PAIRS_OF_JOIN = """COPY (SELECT one.work AS "left", other.work AS "right", count(*) AS "count"
FROM kept one JOIN kept other ON one.article = other.article AND one.work < other.work
GROUP BY ALL HAVING count(*) >= 2 ORDER BY 1, 2) TO '{out}'"""
BY_HAND = {JOIN: (NUMBERED, JOINED, PAIRS_OF_JOIN), LISTS: (NUMBERED, PAIRS_OF_LISTS)}
WAYS = {"ours": OURS, "capped": CAPPED, "lists": LISTS, "join": JOIN}


def run_sql(way: str, corpus: Path, out: Path, memory: str, threads: int) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{memory}'; SET threads = {threads}")
        temporary = scratch_of(out) / "sql"
        connection.execute(f"SET temp_directory = '{temporary}'; SET preserve_insertion_order = false")
        connection.execute("SET enable_progress_bar = false")
        names = {"papers": corpus / PAPERS, "citations": corpus / CITATIONS, "out": out}
        for statement in BY_HAND[way]:
            connection.execute(statement.format(**names))


def scratch_of(out: Path) -> Path:
    """The folder of a way's temporary files."""
    return out.with_suffix(f".{SPILLED}")


class DiskWatch(threading.Thread):
    """Samples the size of a folder until it is stopped; `largest` has its bytes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.largest = 0
        self._folder, self._stopped = folder, threading.Event()

    def run(self) -> None:
        """Sample the size."""
        while not self._stopped.wait(0.5):
            used = 0
            for base, _, files in os.walk(self._folder):
                with contextlib.suppress(OSError):  # a file may go in between
                    used += sum(os.stat(os.path.join(base, name)).st_blocks * 512 for name in files)
            self.largest = max(self.largest, used)

    def stop(self) -> None:
        """End the sampling."""
        self._stopped.set()
        self.join()


def run_ours(way: str, corpus: Path, out: Path, memory: str, threads: int) -> LinkGraph:
    from sentence_experts.corpus.corpus_folder import CorpusFolder
    from sentence_experts.pairs.config import PairsConfig
    from sentence_experts.pairs.graph import LinkGraph
    from sentence_experts.pairs.sql_engine import open_engine

    longest = 500 if way == CAPPED else None
    limits: dict[str, Any] = {"memory": memory, "engine": f"local[{threads}]", "scratch": scratch_of(out)}
    config = PairsConfig.of(unit="abstract", min_count=LEAST, max_references=longest, **limits)
    with open_engine(config, beside=out) as engine:
        return LinkGraph(CorpusFolder.open(corpus), config, engine)


def child(way: str, corpus: Path, out: Path, memory: str, threads: int) -> None:
    """Run one way and print what it took."""
    import duckdb

    duckdb.connect().close()  # what either imports is not measured
    scratch_of(out).mkdir(exist_ok=True)
    watch = DiskWatch(scratch_of(out))
    watch.start()
    started, used = time.perf_counter(), time.process_time()
    run = run_sql if way in BY_HAND else run_ours
    graph = run(way, corpus, out, memory, threads)
    took: dict[str, Any] = {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - used,
    }
    watch.stop()
    took["disk_megabytes"] = watch.largest / 1e6
    took["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    if graph is not None:
        took["left_out"] = graph.counts["left_out_by_max_references"]
        pairs = {"left": graph.pairs.left, "right": graph.pairs.right, "count": graph.pairs.count}
        pq.write_table(pa.table(pairs), out)
    print(json.dumps(took))


def measured(way: str, corpus: Path, out: Path, memory: str, threads: int) -> dict:
    command = [sys.executable, __file__, "--child", way, "--folder", str(corpus), "--out", str(out)]
    limits = ["--memory", memory, "--threads", str(threads)]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr}")
    return {**json.loads(done.stdout.splitlines()[-1]), "load": round(os.getloadavg()[0], 1)}


def sorted_pairs(path: Path) -> pa.Table:
    import duckdb

    query = f'SELECT "left"::INT, "right"::INT, "count"::INT FROM \'{path}\' ORDER BY ALL'
    return duckdb.connect().execute(query).to_arrow_table()


def compare(
    citations: int, rounds: int, ways: list[str], folder: Path, memory: str, threads: int
) -> dict[str, Any]:
    """The ways on one graph; raises SystemExit where the pairs of two of them differ."""
    corpus = folder / f"graph-{citations}"
    if not (corpus / MANIFEST).exists():
        write_graph(corpus, citations)
    runs: dict[str, list[dict]] = {way: [] for way in ways}
    for number in range(rounds):
        files = {way: folder / f"pairs-{place}.parquet" for place, way in enumerate(ways)}
        for way in ways:
            runs[way].append(measured(way, corpus, files[way], memory, threads))
            print(f"{citations:,}, round {number + 1}: {way}: {runs[way][-1]}", flush=True)
        if number == 0:
            ours = sorted_pairs(files[OURS])
            if not all(sorted_pairs(files[way]).equals(ours) for way in ways if way in BY_HAND):
                raise SystemExit(f"{citations:,} citations: the pairs differ")
    counts = read_json(corpus / MANIFEST)["counts"]
    return {"citations": counts["citations"], "pairs": ours.num_rows, "runs": runs}


def middle(runs: list[dict], what: str) -> float:
    return float(statistics.median(run[what] for run in runs))


def as_table(results: list[dict]) -> str:
    header = [
        "citations",
        "pairs",
        "way",
        "seconds",
        "CPU seconds",
        "CPU of ours to it",
        "peak memory",
        "disk",
    ]
    rows = []
    for result in results:
        for way, runs in result["runs"].items():
            pairs = zip(result["runs"][OURS], runs, strict=True)
            share = statistics.median(ours["cpu_seconds"] / run["cpu_seconds"] for ours, run in pairs)
            cells = [f"{middle(runs, what):.1f}" for what in ("seconds", "cpu_seconds")]
            cells.append(f"{share:.2f}")
            cells += [f"{max(run[what] for run in runs):,.0f} MB" for what in ("megabytes", "disk_megabytes")]
            rows.append([f"{result['citations']:,}", f"{result['pairs']:,}", way, *cells])
    return table(header, rows)


def main() -> None:
    given = options(
        __doc__,
        citations=[1_000_000, 10_000_000, 100_000_000],
        rounds=[3, 3, 2],
        memory="4GB",
        threads=2,
        folder=Path,
        ways=list(WAYS),
        results="co_citation",
        child=str,
        out=Path,
    )
    if given.child:
        return child(given.child, given.folder, given.out, given.memory, given.threads)
    ways = [OURS, *(WAYS[name] for name in given.ways if name != "ours")]
    with tempfile.TemporaryDirectory(dir=HERE) as scratch:
        folder = given.folder or Path(scratch)
        results = [
            compare(size, number, ways, folder, given.memory, given.threads)
            for size, number in zip(given.citations, given.rounds, strict=True)
        ]
    loads = [run["load"] for result in results for runs in result["runs"].values() for run in runs]
    text = f"""# From citations to co-cited pairs

A generated heavy-tailed graph; pairs with a count of at least {LEAST} within a domain of {DOMAIN:,} papers;
{given.threads} threads, engine memory {given.memory}; medians of {given.rounds} alternating rounds.
The load of the machine was {min(loads)} to {max(loads)}: where it exceeds the threads, other jobs shared the
cores, and CPU seconds and ratios say more than seconds. Made by `python benchmarks/co_citation.py`.

{as_table(results)}"""
    versions = {name: version(name) for name in ("duckdb", "pyarrow")}
    versions["python"] = platform.python_version()
    limits = {"memory": given.memory, "threads": given.threads}
    write(
        given.results,
        {"sizes": results, **limits, "versions": versions},
        text,
    )


if __name__ == "__main__":
    main()

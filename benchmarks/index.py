"""Nearest neighbours in a large corpus: exact and LanceDB as `search` uses them, beside FAISS and DuckDB.

    OMP_NUM_THREADS=1 python benchmarks/index.py --papers 100000
    OMP_NUM_THREADS=1 python benchmarks/index.py --papers 1000000 --routes 1 --folder /tmp/index

Vectors of 384 numbers lie between those of two random eLife titles (all-MiniLM-L6-v2), with noise; three
routes have three sets of them. Each way runs in a process of its own, on one core, and answers the same
queries without a filter and behind filters that 2% and 0.1% of the papers pass. Recall is that of the ten
nearest, as exact search finds them; the page cache is warm. Where other programs share the machine, compare
CPU times: seconds of the clock hold waiting. With `--folder` an interrupted call goes on with the ways that
are not measured yet.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WAYS = ("exact", "lancedb", "faiss flat", "faiss hnsw", "duckdb")
SHARES = {"all": 1.0, "2%": 0.02, "0.1%": 0.001}
TOP = 10
NOISES = 50_000
Vectors = NDArray[np.float32]
# Finds the places of the nearest vectors of a query, of a route, among some places.
Search = Callable[[Vectors, int, Any], Any]


def make(folder: Path, papers: int, routes: int, queries: int) -> None:
    """Write the vectors, queries and filters, and what exact search finds."""
    real = _titles(folder / "titles.npy")
    dice = np.random.default_rng(0)
    # Drawn once and picked from: to draw it for every vector would take most of the time.
    noise = 0.02 * dice.standard_normal((NOISES, real.shape[1]), np.float32)
    for name, share in SHARES.items():
        passes = np.sort(dice.choice(papers, max(round(share * papers), TOP), replace=False))
        np.save(folder / f"places-{name}.npy", passes)
    for route in range(routes):
        target = np.lib.format.open_memmap(
            folder / f"vectors{route}.npy", "w+", np.float32, (papers, real.shape[1])
        )
        for start in range(0, papers, 50_000):
            block = target[start : start + 50_000]
            block[:] = _between(real, noise, len(block), dice)
        target.flush()
        asked = _between(real, noise, queries, dice)
        np.save(folder / f"queries{route}.npy", asked)
        for name in SHARES:
            places = None if name == "all" else np.load(folder / f"places-{name}.npy")
            found = [_nearest(target, query, places) for query in asked]
            np.save(folder / f"truth{route}-{name}.npy", np.stack(found))


def _titles(file: Path) -> Vectors:
    """The vectors of titles, which those of the papers lie between."""
    if not file.exists():
        from measuring import elife_texts
        from sentence_experts import load

        titles, _ = elife_texts(1000)
        np.save(file, load("minilm", device="cpu").encode(titles, normalize_embeddings=True))
    vectors: Vectors = np.load(file).astype(np.float32)
    return vectors


def _between(real: Vectors, noise: Vectors, count: int, dice: np.random.Generator) -> Vectors:
    first, second = (real[dice.integers(0, len(real), count)] for _ in range(2))
    share = dice.random((count, 1), np.float32)
    mixed = share * first + (1 - share) * second
    mixed += noise[dice.integers(0, len(noise), count)]
    lengths = np.linalg.norm(mixed, axis=1, keepdims=True)
    scaled: Vectors = (mixed / lengths).astype(np.float32)
    return scaled


def _nearest(vectors: Vectors, query: Vectors, places: Any, table: Any = None) -> Any:
    """The nearest vectors, as `search` finds them."""
    from sentence_experts.retrieval.closeness import Scale
    from sentence_experts.retrieval.search_routes import Blend, SearchRoute
    from sentence_experts.retrieval.searcher import Comparison
    from sentence_experts.retrieval.vectors import RouteVectors

    route = RouteVectors(vectors, np.arange(len(vectors)), table)
    passing = None if places is None else np.isin(route.rows, places)
    blend = Blend((SearchRoute("", None, None),))
    return Comparison(blend, (query,), (route,), Scale(0, 1)).nearest(TOP, passing)


def _routes(folder: Path) -> int:
    return len(list(folder.glob("vectors*.npy")))


def _vectors(folder: Path, route: int) -> Vectors:
    matrix: Vectors = np.load(folder / f"vectors{route}.npy", mmap_mode="r")
    return matrix


def build(way: str, folder: Path) -> None:
    """Build what a way needs, once."""
    for route in range(_routes(folder)):
        vectors, file = _vectors(folder, route), folder / f"{way.replace(' ', '-')}{route}"
        if way == "lancedb":
            from sentence_experts.retrieval import approximate

            approximate.build(file / approximate.FOLDER, vectors)
        elif way.startswith("faiss"):
            import faiss

            flat = way == "faiss flat"
            index: Any = (
                faiss.IndexFlatIP(vectors.shape[1])
                if flat
                else faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
            )
            index.add(np.ascontiguousarray(vectors))
            faiss.write_index(index, str(file))
        elif way == "duckdb":
            import duckdb
            import pyarrow as pa

            file.unlink(missing_ok=True)  # of an interrupted build
            width = vectors.shape[1]
            column = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(vectors).ravel()), width)
            table = pa.table({"place": pa.array(np.arange(len(vectors))), "vector": column})
            with duckdb.connect(str(file)) as database:
                database.register("given", table)
                database.execute(
                    f"CREATE TABLE v AS SELECT place, vector::FLOAT[{width}] AS vector FROM given"
                )


def opened(way: str, folder: Path) -> Search:
    """The search of a way, over all routes."""
    routes = range(_routes(folder))
    files = [folder / f"{way.replace(' ', '-')}{route}" for route in routes]
    matrices = [_vectors(folder, route) for route in routes]
    if way == "exact":
        return lambda query, route, places: _nearest(matrices[route], query, places)
    if way == "lancedb":
        from sentence_experts.retrieval import approximate

        approximate.LARGE = 0  # type: ignore[misc]
        tables = [approximate.LanceVectors.open(*each) for each in zip(files, matrices, strict=True)]
        return lambda query, route, places: _nearest(matrices[route], query, places, tables[route])
    if way == "duckdb":
        import duckdb

        width, bases = matrices[0].shape[1], [duckdb.connect(str(file), read_only=True) for file in files]
        for base in bases:
            base.execute("SET threads = 1")

        def search(query: Vectors, route: int, places: Any) -> Any:
            among = "" if places is None else "WHERE place IN (SELECT unnest(?))"
            given = [query.tolist()] if places is None else [places.tolist(), query.tolist()]
            rows = bases[route].execute(
                f"SELECT place FROM v {among} ORDER BY array_inner_product(vector, ?::FLOAT[{width}]) DESC "
                f"LIMIT {TOP}",
                given,
            )
            return np.array(rows.fetchall()).ravel()

        return search
    import faiss as untyped

    faiss: Any = untyped
    faiss.omp_set_num_threads(1)
    indexes: list[Any] = [faiss.read_index(str(file)) for file in files]
    hnsw = way == "faiss hnsw"

    def by_faiss(query: Vectors, route: int, places: Any) -> Any:
        options: dict[str, Any] = {} if places is None else {"sel": faiss.IDSelectorBatch(places)}
        kind = (
            faiss.SearchParametersHNSW(efSearch=128, **options) if hnsw else faiss.SearchParameters(**options)
        )
        return indexes[route].search(query[None], TOP, params=kind)[1][0]

    return by_faiss


def measure(way: str, folder: Path) -> dict[str, Any]:
    """Open a way in this process, and search."""
    before, started, used = _resident(), time.perf_counter(), time.process_time()
    search = opened(way, folder)
    found: dict[str, Any] = {"open_s": time.perf_counter() - started}
    found["open_cpu_s"] = time.process_time() - used
    for name in SHARES:
        places = None if name == "all" else np.load(folder / f"places-{name}.npy")
        recalls, seconds, cpu = [], [], []
        for route in range(_routes(folder)):
            queries = np.load(folder / f"queries{route}.npy")
            truth = np.load(folder / f"truth{route}-{name}.npy")
            search(queries[0], route, places)
            for query, nearest in zip(queries, truth, strict=True):
                started, used = time.perf_counter(), time.process_time()
                best = search(query, route, places)
                seconds.append(time.perf_counter() - started)
                cpu.append(time.process_time() - used)
                recalls.append(len(set(np.asarray(best).tolist()) & set(nearest.tolist())) / TOP)
        found[name] = {
            "recall@10": float(np.mean(recalls)),
            "p50_ms": 1000 * float(np.quantile(seconds, 0.5)),
            "p95_ms": 1000 * float(np.quantile(seconds, 0.95)),
            "cpu_ms": 1000 * float(np.mean(cpu)),
        }
    after = _resident()
    return found | {name: after[name] - before[name] for name in after}


def _resident() -> dict[str, float]:
    """MB of this process in memory: with mapped files, and without them."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) / 1024 for line in lines if line.endswith(" kB")}
    return {"rss_mb": sizes["VmRSS:"], "own_mb": sizes["RssAnon:"]}


def _in_process(*arguments: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "LANCE_CPU_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def built(way: str, folder: Path) -> dict[str, Any]:
    """Build in a process of its own, unless that was done before: the seconds."""
    file = folder / f"built-{way.replace(' ', '-')}.json"
    if not file.exists():
        started, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        _in_process("--step", "build", way, str(folder))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        took = {"build_s": time.perf_counter() - started, "build_cpu_s": cpu}
        file.write_text(json.dumps(took), encoding="utf-8")
    seconds: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return seconds


def measured(way: str, folder: Path) -> dict[str, Any]:
    """Build and search in processes of their own; what was measured before is read."""
    file = folder / f"measured-{way.replace(' ', '-')}.json"
    if not file.exists():
        seconds = built(way, folder)
        found = json.loads(_in_process("--step", "search", way, str(folder)))
        file.write_text(json.dumps(seconds | found), encoding="utf-8")
        for made in folder.glob(f"{way.replace(' ', '-')}[0-9]"):  # one way at a time on the disk
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    one: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    print(way, json.dumps(one), flush=True)
    return one


def main() -> None:
    from measuring import options, table, versions, write

    given = options(__doc__, papers=100_000, routes=3, queries=30, ways=list(WAYS), folder=Path, step=[])
    if given.step:
        step, way, place = given.step
        if step == "build":
            build(way, Path(place))
        else:
            print(json.dumps(measure(way, Path(place))))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        if not (folder / "made").exists():
            make(folder, given.papers, given.routes, given.queries)
            (folder / "made").touch()
        ways = {way: measured(way, folder) for way in given.ways}
    rows = [
        [
            way,
            f"{one['build_cpu_s']:.0f}",
            f"{one['open_cpu_s']:.2f}",
            *(f"{one[share]['recall@10']:.3f}" for share in SHARES),
            *(f"{one[share]['cpu_ms']:.1f}" for share in SHARES),
            f"{one['all']['p95_ms']:.1f}",
            f"{one['rss_mb']:,.0f}",
            f"{one['own_mb']:,.0f}",
        ]
        for way, one in ways.items()
    ]
    heads = ["way", "build CPU s", "open CPU s", *(f"recall@10 {share}" for share in SHARES)]
    heads += [*(f"CPU ms {share}" for share in SHARES), "p95 ms", "RSS MB", "without mapped files"]
    libraries = ("lancedb", "faiss-cpu", "duckdb", "numpy")
    result = {"papers": given.papers, "routes": given.routes, "ways": ways, "versions": versions(*libraries)}
    title = f"# Index: {given.papers:,} papers, {given.routes} route(s), 384 numbers, one core"
    write(f"index_{given.papers}", result, f"{title}\n\n{table(heads, rows)}")


if __name__ == "__main__":
    main()

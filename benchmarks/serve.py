"""The server's cost over encoding in process: CPU time per text, latency, memory; and a soak.

    python benchmarks/serve.py [--titles 128] [--long 24] [--rounds 3] [--infinity FOLDER] [--soak SECONDS]

1, 4 and 16 clients send all-MiniLM-L6-v2 one text per request over kept connections, as OpenAI's client does
(base64). CPU time is the server process's own, so it does not depend on what else runs; wall time does. In
process, `encode` gets all texts at once (the batches that it likes best), then as many as the server had per
batch, and, for latency, one at a time. infinity serves the same model beside it, from an environment of its
own. Five routes mixed are compared with one route of the same model with five experts. The soak adds clients
that leave, send garbage and send texts of 2 MB.
"""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import psutil

from infinity import VERSIONS, make_environment, running_infinity
from measuring import RESULTS, elife_texts, options, table, versions, write

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers.running_server import RunningServer, running_server

CLIENTS = (1, 4, 16)
MANY = 64  # clients, for batches in which each of five routes has several texts
EXPERTS = ("a", "b", "c", "d", "e")
WORDS = 200
SINGLE = 30  # texts, one at a time, for latency
BIG = 2_000_000  # characters
HEADERS = {"Content-Type": "application/json"}


class Process:
    """CPU time and memory of a server."""

    def __init__(self, server: Any) -> None:
        self._process = psutil.Process(server.process.pid)

    def cpu(self) -> float:
        """Seconds so far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def memory(self) -> float:
        """MiB now."""
        return float(self._process.memory_info().rss / 2**20)


def connect(server: Any) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=120)


def post(connection: http.client.HTTPConnection, request: Any) -> int:
    body = request if isinstance(request, bytes) else json.dumps(request)
    connection.request("POST", "/v1/embeddings", body, HEADERS)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def load_server(server: Any, requests: Sequence[Any], clients: int) -> dict[str, float]:
    """Send the requests from this number of clients at once: CPU-ms per text, latency, texts per batch."""
    waiting, lock, seconds = iter(requests), threading.Lock(), list[float]()

    def client() -> None:
        connection = connect(server)
        while True:
            with lock:
                request = next(waiting, None)
            if request is None:
                return
            started = time.perf_counter()
            status = post(connection, request)
            assert status == 200, status
            seconds.append(time.perf_counter() - started)

    process, batches = Process(server), figure(server, "batch_texts_count")
    before, started = process.cpu(), time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - started
    cpu, ranked = process.cpu() - before, sorted(seconds)
    assert len(ranked) == len(requests)
    result = {
        "cpu_ms": 1000 * cpu / len(requests),
        "p50_ms": 1000 * ranked[len(ranked) // 2],
        "p95_ms": 1000 * ranked[int(len(ranked) * 0.95)],
        "texts_per_second": len(requests) / wall,
    }
    if batches is not None:
        result["batch"] = len(requests) / (figure(server, "batch_texts_count") - batches)
    return result


def figure(server: Any, name: str) -> Any:
    """One of our server's figures; None from infinity."""
    if not isinstance(server, RunningServer):
        return None
    page = connect(server)
    page.request("GET", "/metrics")
    text = page.getresponse().read().decode()
    return float(text.split(f"\nsentence_experts_{name} ")[1].split()[0])


def in_process(model: Any, texts: Sequence[str], batch: int | None = None) -> dict[str, float]:
    """CPU-ms per text with all texts at once, or so many; then the median ms of one at a time."""
    from sentence_experts.encoding.encoder import BatchEncoder

    encoder, size = BatchEncoder(model), batch or len(texts)
    started = time.process_time()
    for start in range(0, len(texts), size):
        encoder.encode(texts[start : start + size])
    cpu = time.process_time() - started
    result = {"cpu_ms": 1000 * cpu / len(texts)}
    if batch is None:
        each = []
        for text in texts[:SINGLE]:
            begun = time.perf_counter()
            encoder.encode([text])
            each.append(time.perf_counter() - begun)
        result["p50_ms"] = 1000 * statistics.median(each)
    return result


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in rounds), 2) for name in rounds[0]}


def in_round(found: dict[str, list[dict[str, float]]], of: str, to: str, figure: str = "cpu_ms") -> float:
    """The median over rounds of how many times as much `of` is as `to`."""
    pairs = zip(found[of], found[to], strict=True)
    return round(statistics.median(one[figure] / other[figure] for one, other in pairs), 3)


def measure(titles: list[str], long: list[str], rounds: int, experts: Path, infinity: Any) -> dict[str, Any]:
    """Every way in every round, in turn."""
    import sentence_experts

    model = sentence_experts.load("minilm", device="cpu")
    found: dict[str, list[dict[str, float]]] = {}
    with running_server("minilm", f"experts={experts}") as server:
        ways: dict[str, Callable[[], dict[str, float]]] = {}
        for kind, texts in (("titles", titles), ("long", long)):
            requests = [{"model": "minilm", "input": text, "encoding_format": "base64"} for text in texts]
            ways[f"{kind}, in process"] = partial(in_process, model, texts)
            for clients in CLIENTS:
                part = requests if clients > 1 else requests[: len(requests) // 2]
                ways[f"{kind}, {clients} clients"] = partial(load_server, server, part, clients)
                if infinity is not None:
                    ways[f"{kind}, {clients} clients, infinity"] = partial(
                        load_server, infinity, part, clients
                    )
            most = f"{kind}, {CLIENTS[-1]} clients"
            ways[f"{kind}, in process, same batches"] = lambda texts=texts, most=most: in_process(  # type: ignore[misc]
                model, texts, round(latest[most]["batch"])
            )
        for name, routes in (("one route", EXPERTS[:1]), ("five routes", EXPERTS)):
            requests = [
                {"model": f"experts:{route}", "input": text, "encoding_format": "base64"}
                for text, route in zip(titles, cycle(routes), strict=False)
            ]
            ways[f"titles, {name}"] = partial(load_server, server, requests, CLIENTS[-1])
        for number in range(rounds + 1):
            latest: dict[str, dict[str, float]] = {}
            for name, way in ways.items():
                latest[name] = way()
                print(number, name, latest[name], file=sys.stderr, flush=True)
                if number:
                    found.setdefault(name, []).append(latest[name])
        memory = {"ours": round(Process(server).memory())}
    if infinity is not None:
        memory["infinity"] = round(Process(infinity).memory())
    ways_found = {name: medians(each) for name, each in found.items()}
    return {"ways": ways_found, "ratios": ratios(found), "memory_mib": memory}


def five_routes(titles: list[str], rounds: int, experts: Path) -> dict[str, Any]:
    """One route and five, in turn, with small batches and with larger ones."""
    found: dict[str, list[dict[str, float]]] = {}
    with running_server(f"experts={experts}") as server:
        for number in range(rounds + 1):
            for clients in (CLIENTS[-1], MANY):
                for name, routes in (("one route", EXPERTS[:1]), ("five routes", EXPERTS)):
                    texts = titles * (clients // CLIENTS[-1])
                    requests = [
                        {"model": f"experts:{route}", "input": text, "encoding_format": "base64"}
                        for text, route in zip(texts, cycle(routes), strict=False)
                    ]
                    way = load_server(server, requests, clients)
                    if number:
                        found.setdefault(f"{name}, {clients} clients", []).append(way)
    return {
        f"{clients} clients": {
            "cpu": in_round(found, f"five routes, {clients} clients", f"one route, {clients} clients"),
            "texts per batch": medians(found[f"five routes, {clients} clients"])["batch"],
        }
        for clients in (CLIENTS[-1], MANY)
    }


def ratios(found: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Figures that the goals are about."""
    result = {}
    for kind in ("titles", "long"):
        most = f"{kind}, {CLIENTS[-1]} clients"
        result[f"{kind}: CPU over in process, all at once"] = in_round(found, most, f"{kind}, in process")
        result[f"{kind}: CPU over in process, same batches"] = in_round(
            found, most, f"{kind}, in process, same batches"
        )
        result[f"{kind}: p50 of 1 client over in process"] = in_round(
            found, f"{kind}, 1 clients", f"{kind}, in process", "p50_ms"
        )
        for clients in CLIENTS:
            ours = f"{kind}, {clients} clients"
            if f"{ours}, infinity" in found:
                result[f"{ours}: infinity's CPU over ours"] = in_round(found, f"{ours}, infinity", ours)
    result["five routes: CPU over one route"] = in_round(found, "titles, five routes", "titles, one route")
    return result


def soak(titles: list[str], seconds: float, pause: float = 0) -> dict[str, Any]:
    """Answers of honest clients beside others, and the server's memory by the minute.

    All clients wait for `pause` seconds after each request.
    """
    lost, answers, until = list[int](), list[int](), time.monotonic() + seconds
    with running_server("minilm", "--queue-tokens", "20000") as server:
        host, _, port = server.url.removeprefix("http://").partition(":")

        def honest() -> None:
            connection = connect(server)
            for title in cycle(titles):
                if time.monotonic() > until:
                    return
                status = post(connection, {"input": title})
                (answers if status in (200, 429) else lost).append(status)
                time.sleep(pause)

        def hostile(seed: int) -> None:
            chance = random.Random(seed)
            while time.monotonic() < until:
                time.sleep(pause)
                body = json.dumps({"input": [*chance.choices(titles, k=50), "x y " * (BIG // 4)]}).encode()
                kind = chance.choice(("leaves", "garbage", "big", "half"))
                if kind == "big":
                    post(connect(server), body)
                    continue
                with socket.create_connection((host, int(port)), timeout=60) as connection:
                    head = (
                        f"POST /v1/embeddings HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
                    )
                    length = f"Content-Length: {len(body)}\r\n\r\n"
                    sent = chance.randbytes(1000) if kind == "garbage" else (head + length).encode() + body
                    connection.sendall(sent[: len(sent) // 2] if kind == "half" else sent)
                    time.sleep(chance.random() / 5)

        threads = [threading.Thread(target=honest) for _ in range(2)]
        threads += [threading.Thread(target=hostile, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        process, memory = Process(server), list[int]()
        begun = process.cpu()
        while any(thread.is_alive() for thread in threads):
            memory.append(round(process.memory()))
            time.sleep(min(60, seconds / 10))
        for thread in threads:
            thread.join()
        time.sleep(1)
        cpu = process.cpu() - begun
        left = figure(server, "queue_tokens")
        server.send(signal.SIGTERM)
        server.process.join(60)
    return {
        "seconds": seconds,
        "cpu_seconds": round(cpu),
        "answers": len(answers),
        "busy": answers.count(429),
        "lost": len(lost),
        "memory_mib": memory,
        "queue_left": left,
        "exit": server.process.exitcode,
    }


def extended(folder: Path) -> Path:
    """MiniLM with five experts, alike: their weights decide nothing about time."""
    import sentence_experts

    sentence_experts.extend("minilm", experts=EXPERTS).save(str(folder / "experts"))
    return folder / "experts"


def told(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    names = ("cpu_ms", "p50_ms", "p95_ms", "texts_per_second", "batch")
    rows = [
        [name, *(f"{way[each]:.1f}" if each in way else "" for each in names)]
        for name, way in result["ways"].items()
    ]
    header = ["", "CPU-ms per text", "p50 ms", "p95 ms", "texts per second", "texts per batch"]
    told_ratios = table(
        ["", "median over rounds"], [[name, f"{each:.2f}"] for name, each in result["ratios"].items()]
    )
    memory = ", ".join(f"{name} {number} MiB" for name, number in result["memory_mib"].items())
    text = f"{table(header, rows)}\n\n{told_ratios}\n\nMemory after all rounds: {memory}."
    if "routes" in result:
        text += f"\n\nFive routes over one, measured apart (`--only-routes`): {json.dumps(result['routes'])}"
    if "soak" in result:
        text += f"\n\nSoak: {json.dumps(result['soak'])}"
    return text


def main() -> None:
    """Measure and write."""
    given = options(
        __doc__,
        titles=128,
        long=24,
        rounds=3,
        soak=0.0,
        pause=0.0,
        only_soak=False,
        only_routes=False,
        infinity=Path,
    )
    titles, abstracts = elife_texts(given.titles)
    words = cycle(" ".join(abstracts).split())
    long = [" ".join(islice(words, WORDS)) for _ in range(given.long)]
    # A part that is not measured again stays as it was.
    kept = RESULTS / "serve.json"
    result = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    if given.only_routes:
        with tempfile.TemporaryDirectory() as folder:
            result["routes"] = five_routes(titles, given.rounds, extended(Path(folder)))
    elif not given.only_soak:
        other: Any = nullcontext()
        if given.infinity:
            from sentence_experts.models.sources import minilm_path

            make_environment(given.infinity, versions()["torch"].partition("+")[0])
            other = running_infinity(given.infinity, Path(minilm_path()))
        with tempfile.TemporaryDirectory() as folder, other as infinity:
            result |= measure(titles, long, given.rounds, extended(Path(folder)), infinity)
    if given.soak:
        result["soak"] = soak(titles, given.soak, given.pause)
    used = versions("fastapi", "uvicorn") | (
        {f"infinity's {name}": each for name, each in VERSIONS.items()} if given.infinity else {}
    )
    write("serve", result | {"versions": used}, told(result))


if __name__ == "__main__":
    main()

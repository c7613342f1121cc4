"""The server's cost over encoding in process: CPU time per text, latency, memory; and a soak.

    python benchmarks/serve.py [--titles 320] [--long 64] [--rounds 3] [--soak SECONDS]

1, 4 and 16 clients send all-MiniLM-L6-v2 one text per request over kept connections, as OpenAI's client does
(base64). CPU time is the server process's own, so it does not depend on what else runs; wall time does. In
process, `encode` gets all texts at once (the batches that it likes best), and, for latency, one at a time.
Five routes mixed are compared with one route of the same model with five experts. The soak adds clients that
leave, send garbage and send texts of 2 MB.
"""

from __future__ import annotations

import argparse
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
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import psutil

from measuring import elife_texts, table, versions, write

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers.running_server import RunningServer, running_server

CLIENTS = (1, 4, 16)
EXPERTS = ("a", "b", "c", "d", "e")
WORDS = 200
BIG = 2_000_000  # characters
HEADERS = {"Content-Type": "application/json"}


class Process:
    """CPU time and memory of a server."""

    def __init__(self, server: RunningServer) -> None:
        self._process = psutil.Process(server.process.pid)

    def cpu(self) -> float:
        """Seconds so far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def memory(self) -> float:
        """MiB now."""
        return float(self._process.memory_info().rss / 2**20)


def connect(server: RunningServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=120)


def post(connection: http.client.HTTPConnection, request: Any) -> int:
    body = request if isinstance(request, bytes) else json.dumps(request)
    connection.request("POST", "/v1/embeddings", body, HEADERS)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def load_server(server: RunningServer, requests: Sequence[Any], clients: int) -> dict[str, float]:
    """Send the requests from so many clients at once; CPU-ms per text, latency, texts per second."""
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

    process = Process(server)
    before, started = process.cpu(), time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - started
    ranked = sorted(seconds)
    return {
        "cpu_ms": 1000 * (process.cpu() - before) / len(requests),
        "p50_ms": 1000 * ranked[len(ranked) // 2],
        "p95_ms": 1000 * ranked[int(len(ranked) * 0.95)],
        "texts_per_second": len(requests) / wall,
    }


def in_process(model: Any, texts: Sequence[str]) -> dict[str, float]:
    """CPU-ms per text with all texts at once, and the median ms of one at a time."""
    from sentence_experts.encoding.encoder import BatchEncoder

    encoder = BatchEncoder(model)
    started = time.process_time()
    encoder.encode(texts)
    cpu = time.process_time() - started
    each = []
    for text in texts[:60]:
        begun = time.perf_counter()
        encoder.encode([text])
        each.append(time.perf_counter() - begun)
    return {"cpu_ms": 1000 * cpu / len(texts), "p50_ms": 1000 * statistics.median(each)}


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in rounds), 2) for name in rounds[0]}


def measure(titles: list[str], long: list[str], rounds: int, experts: Path) -> dict[str, Any]:
    """Every way in every round, in turn."""
    import sentence_experts

    model = sentence_experts.load("minilm", device="cpu")
    found: dict[str, list[dict[str, float]]] = {}
    with running_server("minilm", f"experts={experts}", OMP_NUM_THREADS="") as server:
        ways: dict[str, Callable[[], dict[str, float]]] = {}
        for kind, texts in (("titles", titles), ("long", long)):
            requests = [{"model": "minilm", "input": text, "encoding_format": "base64"} for text in texts]
            ways[f"{kind}, in process"] = lambda texts=texts: in_process(model, texts)  # type: ignore[misc]
            for clients in CLIENTS:
                count = len(requests) if clients > 1 else len(requests) // 2
                ways[f"{kind}, {clients} clients"] = lambda r=requests[:count], c=clients: load_server(
                    server, r, c
                )  # type: ignore[misc]
        for name, routes in (("one route", EXPERTS[:1]), ("five routes", EXPERTS)):
            requests = [
                {"model": f"experts:{route}", "input": text, "encoding_format": "base64"}
                for text, route in zip(titles, cycle(routes), strict=False)
            ]
            ways[f"titles, {name}"] = lambda r=requests: load_server(server, r, CLIENTS[-1])  # type: ignore[misc]
        for number in range(rounds + 1):
            for name, way in ways.items():
                result = way()
                if number:
                    found.setdefault(name, []).append(result)
        memory = Process(server).memory()
    return {"ways": {name: medians(each) for name, each in found.items()}, "memory_mib": round(memory)}


def soak(titles: list[str], seconds: float) -> dict[str, Any]:
    """Answers of honest clients beside others, and the server's memory by the minute."""
    lost, answers, until = list[int](), list[int](), time.monotonic() + seconds
    with running_server("minilm", "--queue-tokens", "20000", OMP_NUM_THREADS="") as server:
        host, _, port = server.url.removeprefix("http://").partition(":")

        def honest() -> None:
            connection = connect(server)
            for title in cycle(titles):
                if time.monotonic() > until:
                    return
                status = post(connection, {"input": title})
                (answers if status in (200, 429) else lost).append(status)

        def hostile(seed: int) -> None:
            chance = random.Random(seed)
            while time.monotonic() < until:
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
        process, memory = Process(server), []
        while any(thread.is_alive() for thread in threads):
            memory.append(round(process.memory()))
            time.sleep(min(60, seconds / 10))
        for thread in threads:
            thread.join()
        time.sleep(1)
        page = connect(server)
        page.request("GET", "/metrics")
        left = page.getresponse().read().decode().split("\nsentence_experts_queue_tokens ")[1].split()[0]
        server.send(signal.SIGTERM)
        ended = server.process.wait(60)
    return {
        "answers": len(answers),
        "busy": answers.count(429),
        "lost": len(lost),
        "memory_mib": memory,
        "queue_left": float(left),
        "exit": ended,
    }


def extended(folder: Path) -> Path:
    """MiniLM with five experts, alike: their weights decide nothing about time."""
    import sentence_experts

    sentence_experts.extend("minilm", experts=EXPERTS).save(str(folder / "experts"))
    return folder / "experts"


def told(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    rows = []
    for name, way in result["ways"].items():
        base = result["ways"].get(f"{name.partition(',')[0]}, in process", way)
        cells = [
            way["cpu_ms"],
            way["cpu_ms"] / base["cpu_ms"],
            way["p50_ms"],
            way.get("p95_ms", ""),
            way.get("texts_per_second", ""),
        ]
        rows.append([name, *(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)])
    header = ["", "CPU-ms per text", "over in process", "p50 ms", "p95 ms", "texts per second"]
    text = f"{table(header, rows)}\n\nMemory of the server after all rounds: {result['memory_mib']} MiB."
    if "soak" in result:
        text += f"\n\nSoak: {json.dumps(result['soak'])}"
    return text


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--titles", type=int, default=320)
    parser.add_argument("--long", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--only-soak", action="store_true")
    given = parser.parse_args()
    titles, abstracts = elife_texts(given.titles)
    words = cycle(" ".join(abstracts).split())
    long = [" ".join(islice(words, WORDS)) for _ in range(given.long)]
    if given.only_soak:
        print(json.dumps(soak(titles, given.soak)))
        return
    with tempfile.TemporaryDirectory() as folder:
        result = measure(titles, long, given.rounds, extended(Path(folder)))
    if given.soak:
        result["soak"] = soak(titles, given.soak)
    write("serve", {**result, "versions": versions("fastapi", "uvicorn")}, told(result))


if __name__ == "__main__":
    main()

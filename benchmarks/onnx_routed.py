"""One ONNX graph of all routes beside a graph for each route: vectors, size, speed and memory.

    OMP_NUM_THREADS=1 python benchmarks/onnx_routed.py [--routes 2 5 7] [--texts 64] [--rounds 5]

all-MiniLM-L6-v2 with an expert per route, whose weights are moved apart at random. `export --format onnx`
writes one graph, with `--route NAME` one for each route. Both run on ONNX Runtime with one thread,
on batches of 32 titles, or abstracts, of eLife of one route after another; the ways alternate, and a speed is
the median of ratios of CPU time within a round. Memory is what a fresh process has more (RssAnon, and VmRSS
with the pages of files) after it has opened its graphs and encoded one batch under each route.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from measuring import elife_texts, in_turn, options, ratio, table, versions, write

ONE, MANY = "one graph", "a graph per route"
BATCH = 32
MOVED = 0.02  # standard deviation of what is added to the experts' weights
TOLERANCE = 1e-5


def exported(folder: Path, routes: int) -> Any:
    """Write both kinds of graphs into a folder, unless they are there; returns the model."""
    import torch

    import sentence_experts

    names = [f"domain{number}" for number in range(routes)]
    model = sentence_experts.extend("minilm", names)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".experts." in name:
                weight.add_(MOVED * torch.randn_like(weight))
    if (folder / MANY / names[-1]).exists():
        return model
    sentence_experts.export(model, folder / ONE, format="onnx")
    for name in names:
        sentence_experts.export(model, folder / MANY / name, route=name, format="onnx")
    return model


def opened(way: str, folder: Path, routes: int) -> Callable[[list[str], int], Any]:
    """What encodes texts of the route of a number."""
    from onnxruntime import InferenceSession, SessionOptions
    from tokenizers import Tokenizer

    options = SessionOptions()
    options.intra_op_num_threads = 1
    files = [folder / ONE] if way == ONE else [folder / MANY / f"domain{number}" for number in range(routes)]
    sessions = [InferenceSession(str(file / "model.onnx"), options) for file in files]
    prompts = json.loads((folder / ONE / "graph.json").read_text(encoding="utf-8"))["prompts"]
    # Both get the same tokens, except for the first, by which the graph of all routes knows the route.
    tokenizers = [Tokenizer.from_file(str(file / "tokenizer.json")) for file in files]
    for tokenizer in tokenizers:
        tokenizer.enable_truncation(256)
        tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}

    def encode(texts: list[str], route: int) -> Any:
        place = 0 if way == ONE else route
        lead = prompts[f"domain{route}"] if way == ONE else ""
        rows = tokenizers[place].encode_batch([lead + text for text in texts])
        names = [each.name for each in sessions[place].get_inputs()]
        inputs = {name: np.array([getattr(row, columns[name]) for row in rows]) for name in names}
        return sessions[place].run(["sentence_embedding"], inputs)[0]

    return encode


def in_batches(encode: Callable[[list[str], int], Any], texts: list[str], routes: int) -> Any:
    """The vectors of all texts under each route, a batch of one route after one of another."""
    return [
        [encode(texts[start : start + BATCH], route) for route in range(routes)]
        for start in range(0, len(texts), BATCH)
    ]


def resident() -> dict[str, float]:
    """MB of this process: without the pages of files, and with them."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) / 1000 for line in lines if line.endswith(" kB")}
    return {"own": sizes["RssAnon:"], "all": sizes["VmRSS:"]}


def memory(way: str, folder: Path, routes: int) -> dict[str, float]:
    """MB that a fresh process needs for the graphs of a way."""
    command = [sys.executable, __file__, "--probe", way, str(folder), "--routes", str(routes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def probe(way: str, folder: Path, routes: int) -> dict[str, float]:
    """The same in this process."""
    import onnxruntime  # noqa: F401
    import tokenizers  # noqa: F401

    before = resident()
    encode = opened(way, folder, routes)
    for route in range(routes):
        encode(["a text of some words"] * BATCH, route)
    after = resident()
    return {kind: after[kind] - before[kind] for kind in after}


def measured(folder: Path, routes: int, kinds: dict[str, list[str]], rounds: int) -> dict[str, Any]:
    """Differences, sizes, speeds and memory for a number of routes."""
    model = exported(folder, routes)
    ways = {way: opened(way, folder, routes) for way in (MANY, ONE)}
    titles = kinds["titles"][:BATCH]
    apart = from_torch = 0.0
    least = 2.0  # between the same texts under two routes: the experts do differ
    for route in range(routes):
        one, many = (ways[way](titles, route) for way in (ONE, MANY))
        least = min(least, float(np.abs(one - ways[ONE](titles, (route + 1) % routes)).max()))
        expected = model.encode(titles, prompt_name=f"domain{route}", show_progress_bar=False)
        apart = max(apart, float(np.abs(one - many).max()))
        from_torch = max(from_torch, float(np.abs(one - expected).max()))
    if max(apart, from_torch) > TOLERANCE or least < 100 * TOLERANCE:
        raise SystemExit(f"differences of {max(apart, from_torch):.1e}, between routes of {least:.1e}")
    found: dict[str, Any] = {
        "routes": routes,
        "apart": apart,
        "from_torch": from_torch,
        "between_routes": least,
    }
    found["megabytes"] = {
        way: sum(file.stat().st_size for file in (folder / way).rglob("model.onnx*")) / 1e6 for way in ways
    }
    for kind, texts in kinds.items() if rounds else ():
        runs = {way: partial(in_batches, ways[way], texts, routes) for way in ways}
        seconds = in_turn(runs, rounds, time.process_time)
        number = len(texts) * routes
        found[kind] = {way: number / statistics.median(seconds[way]) for way in ways}
        found[kind]["ratio"] = ratio(seconds, MANY, ONE)
    found["memory"] = {way: memory(way, folder, routes) for way in ways}
    print(found, flush=True)
    return found


def as_text(rows: list[dict[str, Any]], command: str) -> str:
    """The tables."""
    kinds = [kind for kind in ("titles", "abstracts") if kind in rows[0]]
    header = ["routes", "largest difference", "MB of files", "MB of memory"]
    cells = []
    for row in rows:
        files, kept = row["megabytes"], row["memory"]
        speeds = [
            f"{row[kind][ONE]:.0f} and {row[kind][MANY]:.0f}, {row[kind]['ratio']:.2f}" for kind in kinds
        ]
        sizes = [
            f"{files[ONE]:.0f} and {files[MANY]:.0f}",
            f"{kept[ONE]['own']:.0f} and {kept[MANY]['own']:.0f}",
        ]
        cells.append([str(row["routes"]), f"{max(row['apart'], row['from_torch']):.0e}", *sizes, *speeds])
    load = round(os.getloadavg()[0], 1)
    speed = (
        " Speeds are by CPU time of one thread; the third figure is the speed of the first relative to the "
        f"second within a round. The load of the machine was {load} at the end: where it exceeds 2, other "
        "jobs shared the cores."
    )
    blocks = [
        "# One ONNX graph of all routes",
        "all-MiniLM-L6-v2, an expert per route, batches of 32 texts of a route. The first figure is that of "
        "one graph of all routes, the second that of a graph per route. The difference is the largest of "
        f"a number to a graph of the route and to torch.{speed if kinds else ''} Made by `{command}`.",
        table([*header, *(f"{kind} per second" for kind in kinds)], cells),
    ]
    return "\n\n".join(blocks)


def main() -> None:
    """Measure, and write the table."""
    given = options(__doc__, routes=[2, 5, 7], texts=64, rounds=5, folder=Path, probe=[])
    if given.probe:
        print(json.dumps(probe(given.probe[0], Path(given.probe[1]), given.routes[0])))
        return
    import torch

    torch.set_num_threads(1)
    titles, abstracts = elife_texts(given.texts)
    kinds = {"titles": titles, "abstracts": abstracts[: max(given.texts // 2, 1)]}
    rows = []
    for routes in given.routes:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (given.folder or Path(temporary)) / str(routes)
            rows.append(measured(folder, routes, kinds, given.rounds))
    flags = f"--routes {' '.join(map(str, given.routes))} --texts {given.texts} --rounds {given.rounds}"
    command = f"python benchmarks/onnx_routed.py {flags}"
    result = {"rows": rows, "versions": versions("onnxruntime", "tokenizers")}
    write("onnx_routed", result, as_text(rows, command))


if __name__ == "__main__":
    main()

"""Memory that experts cost: all-MiniLM-L6-v2 dense, with all experts loaded, and with one route's alone.

    python benchmarks/memory.py [--experts 4 20] [--rounds 3]

Each way runs in fresh processes, which load the model, encode 64 texts with one route, read every weight that
is loaded once (a mapped one is in memory from then on), and then read their resident memory (VmRSS). What the
process needs before it loads a model (Python, torch, sentence-transformers) is read too: the model's share is
what comes on top.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import options, table, write

TEXTS = 64
# Code of a fresh process: argument 1 is the folder, 2 the way.
PROBE = """
import gc, json, sys
import torch
torch.set_num_threads(1)
from sentence_transformers import SentenceTransformer
from sentence_experts import load
import transformers.utils.logging
transformers.utils.logging.disable_progress_bar()

def resident():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

folder, way = sys.argv[1:]
texts = [f"number {row} of some sentences about plants, water and the light of the sun" for row in range(64)]
before = resident()

def touch(model):  # a mapped weight is resident once it was read
    for parameter in model.parameters():
        parameter.sum()

if way == "all loaded":
    model = load(folder, device="cpu")
elif way == "one loaded":
    model = load(folder, device="cpu", routes=["task0"])
elif way == "all loaded, then one kept":
    model = load(folder, device="cpu")
    touch(model)
    model.use_routes(["task0"])
elif way == "one after another":
    model = load(folder, device="cpu", routes=["task1"])
    for name in [route.name for route in model.routes][1:]:
        model.use_routes([name])
        touch(model)
    model.use_routes(["task0"])
elif way == "at most one in memory, all called":
    model = load(folder, device="cpu", max_resident_experts=1)
    for route in reversed(model.routes):
        model.encode(texts[:4], prompt_name=route.name)
        touch(model)
if way == "dense":
    model = SentenceTransformer(folder, device="cpu")
    model.encode(texts)
else:
    model.encode(texts, prompt_name="task0")
touch(model)
print(json.dumps([before, resident()]))
"""
WAYS = (
    "all loaded",
    "one loaded",
    "all loaded, then one kept",
    "one after another",
    "at most one in memory, all called",
)


def measure(folder: Path, way: str, rounds: int) -> tuple[float, float]:
    """Bytes before the model and with it, medians."""
    found = []
    for _ in range(rounds):
        command = [sys.executable, "-c", PROBE, str(folder), way]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
        print(f"{way}: {found[-1][1] / 1e6:.0f} MB, {found[-1][0] / 1e6:.0f} before the model", flush=True)
    return statistics.median(row[0] for row in found), statistics.median(row[1] for row in found)


def make(folder: Path, experts: int) -> None:
    """MiniLM with experts that own their norms, in every block, and instructions: MoTE's shape."""
    from sentence_experts.models.files.saving import save
    from sentence_experts.models.sources import model_folder
    from sentence_experts.models.surgery.extend import extend

    names = [f"task{number}" for number in range(experts)]
    save(extend(model_folder("minilm"), names, route="prefix", expert_norms=True), folder)


def main() -> None:
    given = options(__doc__, experts=[4, 20], rounds=3)
    from sentence_experts.models.sources import model_folder

    rows = {"dense": measure(Path(model_folder("minilm")), "dense", given.rounds)}
    with tempfile.TemporaryDirectory() as folder:
        for experts in given.experts:
            make(Path(folder) / str(experts), experts)
            for way in WAYS:
                rows[f"{experts} experts, {way}"] = measure(Path(folder) / str(experts), way, given.rounds)
    sizes = {name: {"before_model": row[0], "with_model": row[1]} for name, row in rows.items()}
    result: dict[str, Any] = {"texts": TEXTS, "rounds": given.rounds, "bytes": sizes}
    before, dense = rows["dense"]
    cells = [
        [
            name,
            f"{whole / 1e6:.0f} MB",
            f"{whole / dense:.2f}",
            f"{(whole - start) / 1e6:.0f} MB",
            f"{(whole - start) / (dense - before):.2f}",
        ]
        for name, (start, whole) in rows.items()
    ]
    text = (
        "# Resident memory of all-MiniLM-L6-v2 with experts\n\n"
        f"VmRSS after encoding {TEXTS} texts with one route; fp32, CPU; medians of {given.rounds} fresh "
        "processes. Made by `python benchmarks/memory.py`.\n\n"
    )
    write("memory", result, text + table(["", "process", "of dense", "the model's share", "of dense"], cells))


if __name__ == "__main__":
    main()

"""Cost of a command before it computes: CPU time and peak memory of fresh processes with a few texts.

    python benchmarks/startup.py [--rounds 5] [--fastembed PYTHON]

The ways take turns, and a ratio is that of two processes of one round. The peer loads the same model with a
bare `SentenceTransformer` and encodes the same texts. Searches read vectors that an earlier search stored.
A server is ended as soon as it says that it serves. PYTHON is that of an environment with fastembed, which
runs the same weights from a graph that is written here.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from measuring import hardware, options, table, versions, write

PEER = "sentence-transformers: import, load, encode"
SERVE = "sentence-experts serve, until it is ready"
CLI = "from sentence_experts.cli.main import main; main()"
MODEL = "SentenceTransformer(sys.argv[1], device='cpu').encode(open(sys.argv[2]).read().splitlines())"
TEXTS = 8
FASTEMBED = """
import sys
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
TextEmbedding.add_custom_model(
    "minilm", PoolingType.MEAN, True, ModelSource(url="file:"), dim=384, model_file="model.onnx"
)
model = TextEmbedding("minilm", specific_model_path=sys.argv[1], threads=1)
list(model.embed(open(sys.argv[2]).read().splitlines()))
"""


def write_plain_graph(folder: Path, model: str) -> None:
    """The encoder without pooling as a graph, with its tokenizer: what fastembed takes."""
    import torch
    from transformers import AutoModel

    shutil.copytree(model, folder, ignore=lambda _, names: [name for name in names if "json" not in name])
    tokens = torch.ones((2, 8), dtype=torch.long)
    given = {"input_ids": tokens, "attention_mask": tokens, "token_type_ids": 0 * tokens}
    torch.onnx.export(
        AutoModel.from_pretrained(model).eval(),
        (),
        str(folder / "model.onnx"),
        kwargs=given,
        input_names=list(given),
        output_names=["last_hidden_state"],
        dynamic_shapes={name: {0: "batch", 1: "length"} for name in given},
        external_data=False,
    )


def ways(folder: Path, fastembed: Path | None) -> dict[str, list[str]]:
    """The command of each way; makes the texts and the corpus in `folder`."""
    import sentence_experts
    from sentence_experts.models.sources import model_folder

    lines = [f"sentence {number} about rice in drought" for number in range(TEXTS)]
    texts = folder / "texts.txt"
    texts.write_text("\n".join(lines), encoding="utf-8")
    papers = [
        {"id": f"doi:10.1/{number}", "title": line, "abstract": line} for number, line in enumerate(lines)
    ]
    sentence_experts.import_corpus(out=folder / "corpus", papers=papers, workers=1)
    cpu = ["--device", "cpu"]
    encode = ["-c", CLI, "encode", "minilm", "--input", str(texts), *cpu, "--out", str(folder / "OUT.npy")]
    peer = f"import sys; from sentence_transformers import SentenceTransformer; {MODEL}"
    corpus = ["--corpus", str(folder / "corpus"), *cpu]
    others = {}
    if fastembed is not None:
        write_plain_graph(folder / "plain", model_folder("minilm"))
        others = {"fastembed: import, load, encode": ["-c", FASTEMBED, str(folder / "plain"), str(texts)]}
    own = {
        "import sentence_transformers": ["-c", "import sentence_transformers"],
        PEER: ["-c", peer, model_folder("minilm"), str(texts)],
        "sentence-experts encode": encode,
        "sentence-experts search": ["-c", CLI, "search", "minilm", *corpus, "rice"],
        SERVE: ["-c", CLI, "serve", "minilm", *corpus, "--port", "0"],
        "sentence-experts encode, an unknown route": [*encode, "--route", "x"],
        "sentence-experts --help": ["-c", CLI, "--help"],
    }
    commands = {name: [sys.executable, *command] for name, command in own.items()}
    return commands | {name: [str(fastembed), *command] for name, command in others.items()}


def measure(command: list[str], number: int) -> tuple[float, float]:
    """CPU seconds and peak resident bytes of one process; `OUT` in its arguments gets the number."""
    arguments = [each.replace("OUT", f"out{number}") for each in command]
    serves = "serve" in command
    errors = subprocess.PIPE if serves else subprocess.DEVNULL
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=errors, text=True)
    if serves:
        any(line.startswith("serving ") for line in process.stderr or ())
        process.terminate()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and "x" not in command:
        raise SystemExit(f"failed: {' '.join(arguments)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0


def main() -> None:
    given = options(__doc__, rounds=5, fastembed=Path)
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        # In a separate process: a child's peak memory counts what this process had when it began.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            commands = pool.submit(ways, Path(folder), given.fastembed).result()
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(given.rounds):
            for place, (name, command) in enumerate(commands.items()):
                found[name].append(measure(command, number * len(commands) + place))
    rows, result = [], {}
    for name, pairs in found.items():
        cpu, memory = (statistics.median(values) for values in zip(*pairs, strict=True))
        ratios = [
            statistics.median(own[kind] / peer[kind] for own, peer in zip(pairs, found[PEER], strict=True))
            for kind in (0, 1)
        ]
        result[name] = {"cpu_seconds": cpu, "peak_bytes": memory, "of_peer": ratios}
        rows.append([name, f"{cpu:.2f} s", f"{ratios[0]:.2f}", f"{memory / 1e6:.0f} MB", f"{ratios[1]:.2f}"])
    text = (
        f"# What a command costs before it computes\n\nFresh processes with {TEXTS} texts and "
        f"all-MiniLM-L6-v2, one thread; medians of {given.rounds} rounds, ratios to the peer ({PEER}) "
        "inside a round. Made by `python benchmarks/startup.py`.\n\n"
        + table(["", "CPU time", "of the peer", "peak memory", "of the peer"], rows)
    )
    write(
        "startup",
        {"rounds": given.rounds, "ways": result, "hardware": hardware(), "versions": versions()},
        text,
    )


if __name__ == "__main__":
    main()

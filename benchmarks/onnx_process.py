"""all-MiniLM-L6-v2 under ONNX Runtime or OpenVINO in another process, so that threads do not disturb others.

sentence-transformers' own back ends for these need transformers below 4.58 (optimum-onnx 0.1) and below 5.6
(optimum-intel 2.2), this package 5.23. Here it is sentence-transformers' own `encode` (sorting, tokenizer,
batches of 32) with the graph of `models.onnx` in place of its modules. The process encodes the texts of a
kind whenever it reads the kind's name.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def onnx_process(
    kinds: Mapping[str, list[str]], threads: int, engine: str = "onnxruntime"
) -> Iterator[Callable[[str], None]]:
    """What encodes the texts of a kind in the other process; `engine` is "onnxruntime" or "openvino"."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "texts.json").write_text(json.dumps(kinds), encoding="utf-8")
        command = [sys.executable, __file__, folder, str(threads), engine]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            to, back = process.stdin, process.stdout

            def encode(kind: str) -> None:
                to.write(f"{kind}\n")
                to.flush()
                if back.readline() != f"{kind}\n":
                    raise RuntimeError(f"the process with {engine} has ended")

            try:
                yield encode
            finally:
                to.close()


def opened(file: Path, threads: int, engine: str) -> tuple[list[str], Callable[[dict[str, Any]], Any]]:
    """The names of the graph's inputs, and what computes its vectors in float32."""
    from sentence_experts.models.export.onnx import VECTOR

    if engine == "openvino":
        from openvino import Core

        precise = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        graph = Core().compile_model(file, "CPU", precise)
        return [each.any_name for each in graph.inputs], lambda given: graph(given)[VECTOR]
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return [each.name for each in session.get_inputs()], lambda given: session.run([VECTOR], given)[0]


def serve(folder: Path, threads: int, engine: str) -> None:
    """Encode what is named on stdin, until it ends."""
    import torch
    from sentence_transformers import SentenceTransformer

    from sentence_experts.models.export.onnx import FILE, write_onnx
    from sentence_experts.models.sources import model_folder

    model = SentenceTransformer(model_folder("minilm"), device="cpu")
    write_onnx(model, folder)
    wanted, run = opened(folder / FILE, threads, engine)

    def forward(features: dict, **_: object) -> dict:
        vectors = run({name: features[name].numpy() for name in wanted})
        return {"sentence_embedding": torch.from_numpy(vectors)}

    model.forward = forward  # type: ignore[method-assign, assignment]
    kinds = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    for line in sys.stdin:
        model.encode(kinds[line.strip()], show_progress_bar=False)
        print(line.strip(), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

"""all-MiniLM-L6-v2 under ONNX Runtime in a process of its own, so that its threads do not disturb others.

sentence-transformers' ONNX back end needs optimum-onnx, and that transformers below 4.58. Here it is
sentence-transformers' own `encode` (sorting, tokenizer, batches of 32) with the graph of `export` in
place of its modules. The process encodes the texts of a kind whenever it reads the kind's name.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def onnx_process(kinds: Mapping[str, list[str]], threads: int) -> Iterator[Callable[[str], None]]:
    """What encodes the texts of a kind in the other process."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "texts.json").write_text(json.dumps(kinds), encoding="utf-8")
        command = [sys.executable, __file__, folder, str(threads)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            to, back = process.stdin, process.stdout

            def encode(kind: str) -> None:
                to.write(f"{kind}\n")
                to.flush()
                if back.readline() != f"{kind}\n":
                    raise RuntimeError("the process with ONNX Runtime has ended")

            try:
                yield encode
            finally:
                to.close()


def serve(folder: Path, threads: int) -> None:
    """Encode what is named on stdin, until it ends."""
    import torch
    from onnxruntime import InferenceSession, SessionOptions
    from sentence_transformers import SentenceTransformer

    from sentence_experts.models.export.onnx import write_graph
    from sentence_experts.models.onnx_encoder import MODEL_FILE, VECTOR
    from sentence_experts.models.sources import model_folder

    model = SentenceTransformer(model_folder("minilm"), device="cpu")
    write_graph(model, folder)
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(str(folder / MODEL_FILE), options, providers=["CPUExecutionProvider"])
    wanted = [each.name for each in session.get_inputs()]

    def forward(features: dict, **_: object) -> dict:
        (found,) = session.run([VECTOR], {name: features[name].numpy() for name in wanted})
        return {"sentence_embedding": torch.from_numpy(found)}

    model.forward = forward  # type: ignore[method-assign, assignment]
    kinds = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    for line in sys.stdin:
        model.encode(kinds[line.strip()], show_progress_bar=False)
        print(line.strip(), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))

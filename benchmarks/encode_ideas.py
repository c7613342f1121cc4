"""Ideas for faster encoding on a CPU, each beside the packed encoder as it is.

    OMP_NUM_THREADS=1 python benchmarks/encode_ideas.py [--texts 24] [--rounds 7] [--engines]

all-MiniLM-L6-v2 on abstracts of eLife, one thread and its CPU time; the ways alternate. A figure is the
median over the rounds of the packed encoder's time over that of the way: more than 1 is a gain. Huge pages
are a setting of the process (GLIBC_TUNABLES), so they are compared in processes of their own; sorting a whole
file is compared on titles. The largest difference of a number of a vector stands beside each figure.
With --engines: inference engines alone, OpenVINO too where it is installed (`pip install openvino`).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from measuring import elife_texts, in_turn, ratio, table, versions, write

BASELINE = "packed, as it is"
PEER = "sentence-transformers, batches of 32"
EIGHT = "8 bits"
OPENVINO = "OpenVINO"
ENGINES = {"ONNX Runtime": "onnxruntime", OPENVINO: "openvino"}
CALIBRATED = 384  # abstracts, behind those that are encoded
STEP = 32  # tokens to which lengths are rounded up
ONNX_STEP = 8  # tokens by which the texts of a batch of ONNX Runtime may differ
PART = 8  # texts of a chunk that is sorted by itself
CHUNK, FILE = 1024, 4096  # texts that `encode` sorts at once; those of a file
PROCESSES = 3  # with each setting
HUGE_PAGES = "glibc.malloc.hugetlb=1"


class FusedProjection(nn.Module):
    """The first of three projections of one input, which computes all three; the others take their slices."""

    def __init__(self, parts: list[nn.Linear]) -> None:
        super().__init__()
        self.weight = torch.cat([part.weight for part in parts])
        self.bias = torch.cat([part.bias for part in parts])
        self.slices: list[Tensor] = []

    def forward(self, hidden: Tensor) -> Tensor:
        """The slice of the first."""
        self.slices = list(nn.functional.linear(hidden, self.weight, self.bias).chunk(3, dim=-1))
        return self.slices[0]


class Slice(nn.Module):
    """One of the slices that a `FusedProjection` has computed."""

    def __init__(self, of: FusedProjection, number: int) -> None:
        super().__init__()
        self.of, self.number = [of], number

    def forward(self, hidden: Tensor) -> Tensor:
        """The slice."""
        return self.of[0].slices[self.number]


def with_fused_projections(model: Any) -> Any:
    """Query, key and value as one matrix multiplication."""
    for layer in model[0].auto_model.encoder.layer:
        attention = layer.attention.self
        fused = FusedProjection([attention.query, attention.key, attention.value])
        attention.query, attention.key, attention.value = fused, Slice(fused, 1), Slice(fused, 2)
    return model


def with_compiled_mlps(model: Any) -> Any:
    """MLP, bias and GELU compiled by torch for any number of tokens."""
    for layer in model[0].auto_model.encoder.layer:
        layer.feed_forward_chunk = torch.compile(layer.feed_forward_chunk, dynamic=True)
    return model


def attention_of_rounded_lengths(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    cu_seq_lens_q: Any = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The packed attention with texts padded to a multiple of `STEP` tokens: fewer calls serve all."""
    starts = cu_seq_lens_q.tolist()
    lengths = [end - start for start, end in pairwise(starts)]
    rows = torch.empty_like(query[0])  # (heads, tokens, width)
    groups: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        groups.setdefault(-(-length // STEP) * STEP, []).append(number)
    for longest, numbers in groups.items():
        q, k, v = (
            torch.stack(
                [pad(row[0, :, starts[n] : starts[n + 1]], (0, 0, 0, longest - lengths[n])) for n in numbers]
            )
            for row in (query, key, value)
        )
        real = torch.arange(longest) < torch.tensor([lengths[n] for n in numbers])[:, None]
        done = scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None])
        for place, number in enumerate(numbers):
            rows[:, starts[number] : starts[number + 1]] = done[place, :, : lengths[number]]
    return rows.transpose(0, 1)[None], None


@contextmanager
def rounded_lengths() -> Iterator[None]:
    """While open, packed attention pads texts to a few lengths."""
    from transformers import AttentionInterface

    from sentence_experts.models.layers.packing import PACKED, packed_attention

    AttentionInterface.register(PACKED, attention_of_rounded_lengths)
    try:
        yield
    finally:
        AttentionInterface.register(PACKED, packed_attention)


def encode(model: Any, texts: list[str]) -> Any:
    """Vectors by the package's encoder, on one thread."""
    from sentence_experts.encoding.parallel_cpu import ParallelCpuEncoder

    return ParallelCpuEncoder(model).encode(texts)


def encode_rounded(model: Any, texts: list[str]) -> Any:
    """The same with texts padded to a few lengths."""
    with rounded_lengths():
        return encode(model, texts)


def encode_in_chunks(model: Any, texts: list[str], size: int = PART) -> Any:
    """The same, sorted by length within chunks only."""
    parts = [encode(model, texts[start : start + size]) for start in range(0, len(texts), size)]
    return np.concatenate(parts)


def gain_of_sorting(rounds: int) -> float:
    """Times as fast if a file of titles is sorted as a whole as if each of its chunks is."""
    model, (titles, _) = opened(), elife_texts(FILE)
    texts = [f"{titles[number % len(titles)]} {number}" for number in range(FILE)]
    ways = {
        "chunks": partial(encode_in_chunks, model, texts, CHUNK),
        "whole": partial(encode, model, texts),
    }
    return ratio(in_turn(ways, rounds, time.process_time), "chunks", "whole")


def encode_pinned(model: Any, texts: list[str]) -> Any:
    """The same on one core, from which the system may not move the thread."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        return encode(model, texts)
    finally:
        os.sched_setaffinity(0, cores)


def opened() -> Any:
    """all-MiniLM-L6-v2, packed."""
    from sentence_transformers import SentenceTransformer

    from sentence_experts.models.architectures.packed_forward import use_packing
    from sentence_experts.models.sources import model_folder

    return use_packing(SentenceTransformer(model_folder("minilm"), device="cpu"))


def in_8_bits(texts: list[str]) -> Any:
    """The model in 8 bits, calibrated on these texts."""
    from sentence_experts.models.layers import int8

    model = opened()
    return int8.apply(model, int8.calibrate(model, texts))


def graph_on(engine: str, file: Path) -> Callable[[dict[str, Any]], Any]:
    """A model's graph on ONNX Runtime or OpenVINO, in fp32, with one thread."""
    from sentence_experts.models.export.onnx import VECTOR

    if engine == OPENVINO:
        from openvino import Core

        # Its default is 16 bits on processors that have them.
        settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        graph = Core().compile_model(file, "CPU", settings)
        return lambda feeds: graph(feeds)[VECTOR]
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run([VECTOR], feeds)[0]


def by_engine(engine: str) -> Callable[[list[str]], Any]:
    """The model's graph on another engine, texts of about the same length together.

    The graph has no packed attention on a CPU, so nearly no padding is the nearest to it.
    """
    from sentence_transformers import SentenceTransformer

    from sentence_experts.models.export.onnx import write_onnx
    from sentence_experts.models.sources import model_folder

    model = SentenceTransformer(model_folder("minilm"), device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        write_onnx(model, Path(folder))
        graph = graph_on(engine, Path(folder) / "model.onnx")

    def run(texts: list[str]) -> Any:
        groups: dict[int, list[int]] = {}
        for place, length in enumerate(model.preprocess(texts)["attention_mask"].sum(dim=1).tolist()):
            groups.setdefault(-(-length // ONNX_STEP), []).append(place)
        vectors = np.empty((len(texts), model.get_embedding_dimension() or 0), np.float32)
        for places in groups.values():
            features = model.preprocess([texts[place] for place in places])
            feeds = {name: value.numpy() for name, value in features.items() if torch.is_tensor(value)}
            vectors[places] = graph(feeds)
        return vectors

    return run


def int8_graphs() -> dict[str, Callable[[], Any]]:
    """A layer of an MLP in 8 bits: the graph in use, and one of operators of the ONNX standard alone."""
    from onnx import TensorProto, helper
    from onnxruntime import InferenceSession, SessionOptions

    from sentence_experts.compat.onnxruntime import int8_linear

    kinds = {"x": TensorProto.FLOAT, "w": TensorProto.INT8, "v": TensorProto.FLOAT, "b": TensorProto.FLOAT}
    shapes = {"x": ["rows", "in"], "w": ["in", "out"], "v": ["out"], "b": ["out"]}
    values = [helper.make_tensor_value_info(name, kinds[name], shapes[name]) for name in kinds]
    values.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, []))
    values.append(helper.make_tensor_value_info("z", TensorProto.UINT8, []))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "v"], ["t"]),
        helper.make_node("Mul", ["f", "t"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "out"])
    graph = helper.make_graph(nodes, "standard", values, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    torch.manual_seed(0)
    given = {
        "x": torch.randn(2048, 384),
        "w": torch.randint(-64, 65, (384, 1536), dtype=torch.int8),
        "v": torch.rand(1536) / 64,
        "s": torch.tensor(0.03),
        "z": torch.tensor(120, dtype=torch.uint8),
        "b": torch.randn(1536),
    }
    feeds = {name: value.numpy() for name, value in given.items()}
    return {
        "in use": lambda: int8_linear(*(given[name] for name in "xwvszb")).numpy(),
        "standard": lambda: session.run(None, feeds)[0],
    }


def engines_to(texts: list[str], model: Any) -> dict[str, Callable[[], Any]]:
    """sentence-transformers, the packed encoder, and other engines that are installed."""
    from sentence_transformers import SentenceTransformer

    from sentence_experts.models.sources import model_folder

    peer = SentenceTransformer(model_folder("minilm"), device="cpu")
    return {
        PEER: partial(peer.encode, texts),
        BASELINE: partial(encode, model, texts),
        **{
            f"{engine}, lengths within {ONNX_STEP} tokens together": partial(by_engine(engine), texts)
            for engine, package in ENGINES.items()
            if find_spec(package)
        },
    }


def ways_to(texts: list[str], after: list[str], compiles: bool) -> dict[str, Callable[[], Any]]:
    """Each idea; 8 bits are calibrated on the texts after those that are encoded."""
    model = opened()
    ways: dict[str, Callable[[], Any]] = {
        **engines_to(texts, model),
        EIGHT: partial(encode, in_8_bits(after), texts),
        "query, key and value in one multiplication": partial(
            encode, with_fused_projections(copy.deepcopy(model)), texts
        ),
        f"attention over lengths rounded up to {STEP}": partial(encode_rounded, model, texts),
        f"sorted by {PART} texts instead of all": partial(encode_in_chunks, model, texts),
        "the thread pinned to a core": partial(encode_pinned, model, texts),
    }
    if compiles:
        compiled = with_compiled_mlps(copy.deepcopy(model))
        ways["MLP with bias and GELU by torch.compile"] = partial(encode, compiled, texts)
    return ways


def seconds_with(pages: str, texts: int, rounds: int) -> list[float]:
    """CPU seconds of each round in a process with this setting of huge pages."""
    command = [sys.executable, __file__, "--alone", "--texts", str(texts), "--rounds", str(rounds)]
    done = subprocess.run(
        command, env={**os.environ, "GLIBC_TUNABLES": pages}, capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compare_engines(texts: list[str], rounds: int) -> None:
    """Measure inference engines, and write their table."""
    ways = engines_to(texts, opened())
    expected = ways[BASELINE]()
    apart = {way: float(np.abs(run() - expected).max()) for way, run in ways.items()}
    seconds = in_turn(ways, rounds, time.process_time)
    gains = {way: ratio(seconds, BASELINE, way) for way in ways}
    head = (
        f"all-MiniLM-L6-v2, {len(texts)} abstracts, fp32, one thread, CPU time; times as fast as the packed "
        f"encoder (medians of {rounds} alternating rounds), and the largest difference of a number. Made by "
        f"`python benchmarks/encode_ideas.py --engines --texts {len(texts)} --rounds {rounds}`."
    )
    rows = [[way, f"{gain:.3f}", f"{apart[way]:.0e}"] for way, gain in gains.items()]
    text = "\n".join(["# Inference engines", "", head, "", table(["", "speed", "difference"], rows)])
    found = {"texts": len(texts), "rounds": rounds, "gains": gains, "differences": apart, "seconds": seconds}
    found["versions"] = versions(*filter(find_spec, ENGINES.values()))
    write("encode_engines", found, text)


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--engines", action="store_true", help="inference engines alone")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    _, abstracts = elife_texts(given.texts + CALIBRATED)
    abstracts, after = abstracts[: given.texts], abstracts[given.texts :]
    if given.alone:
        seconds = in_turn({BASELINE: partial(encode, opened(), abstracts)}, given.rounds, time.process_time)
        print(json.dumps(seconds[BASELINE]))
        return
    if given.engines:
        compare_engines(abstracts, given.rounds)
        return
    ways = ways_to(abstracts, after, not given.no_compile)
    expected = ways[BASELINE]()
    vectors = {way: run() for way, run in ways.items()}
    apart = {way: float(np.abs(each - expected).max()) for way, each in vectors.items()}
    cosine = float((vectors[EIGHT] * expected).sum(axis=1).mean())
    seconds = in_turn(ways, given.rounds, time.process_time)
    gains = {way: ratio(seconds, BASELINE, way) for way in ways}
    pages: dict[str, list[float]] = {"": [], HUGE_PAGES: []}
    for _ in range(PROCESSES):  # in turn too
        for setting, each in pages.items():
            each += seconds_with(setting, given.texts, given.rounds)
    gains["huge pages for memory (madvise)"] = statistics.median(pages[""]) / statistics.median(
        pages[HUGE_PAGES]
    )
    sorting = gain_of_sorting(max(1, given.rounds // 2))
    gains[f"{FILE:,} titles sorted at once instead of by {CHUNK:,}"] = sorting
    layer = in_turn(int8_graphs(), 4 * given.rounds, time.process_time)
    standard = ratio(layer, "standard", "in use")
    rows = [[way, f"{gain:.3f}", f"{apart[way]:.0e}" if way in apart else ""] for way, gain in gains.items()]
    text = "\n".join(
        [
            "# Ideas for faster encoding",
            "",
            f"all-MiniLM-L6-v2, {given.texts} abstracts, fp32, one thread, CPU time; times as fast as the "
            f"packed encoder as it is (medians of {given.rounds} alternating rounds), and the largest "
            "difference of a number. Made by `python benchmarks/encode_ideas.py "
            f"--texts {given.texts} --rounds {given.rounds}`.",
            "",
            table(["", "speed", "difference"], rows),
            "",
            f"Mean cosine of 8 bits, calibrated on {CALIBRATED} other abstracts, to fp32: {cosine:.4f}. A "
            f"layer of an MLP in 8 bits takes {standard:.2f} times as long by operators of the ONNX standard "
            "as by the one of ONNX Runtime that is in use.",
        ]
    )
    write(
        "encode_ideas",
        {
            **vars(given),
            "gains": gains,
            "differences": apart,
            "cosine": cosine,
            "standard": standard,
            "seconds": seconds,
        },
        text,
    )


if __name__ == "__main__":
    main()

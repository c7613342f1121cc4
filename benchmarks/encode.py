"""Texts to vectors on the CPU: compared with sentence-transformers' own encode.

    python benchmarks/encode.py [--texts 1000] [--rounds 5]

all-MiniLM-L6-v2 on titles, abstracts and a half-half mix of real articles. The ways alternate; a ratio is the
median over rounds of seconds by `encode` of sentence-transformers (batches of 32) over seconds by the way.
Share of the peak: floating-point operations of the model's own matrix multiplications, without padding, over
those that the machine does in plain multiplications of an MLP's shape at the same moment. Graphs are those of
`export --format onnx`. The cost of 8 bits in cosine, STS and F1max, and a profile of one core's work, end the
table.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measuring import DATA, elife_texts, gemm_flops, in_turn, options, ratio, table, versions, write

PEER = "sentence-transformers, batches of 32"
BATCH_SIZES = (16,)
OURS = "sentence-experts encode"
PROFILED = 2048  # tokens
CALIBRATED = 128  # titles, and as many abstracts, behind those that are encoded
ALIKE = 0.8  # of the highest score


def ways_to(
    texts: list[str], peer: Any, ours: Any, graph: Any, eight: Any
) -> dict[str, Callable[[], object]]:
    """Each way of encoding the texts."""
    from sentence_experts.models.batching import ParallelCpuEncoder
    from sentence_experts.models.torch_runtime import TorchRuntime

    cores = ParallelCpuEncoder(TorchRuntime(ours))
    ways: dict[str, Callable[[], object]] = {PEER: lambda: peer.encode(texts)}
    for size in BATCH_SIZES:
        ways[f"sentence-transformers, batches of {size}"] = partial(peer.encode, texts, batch_size=size)
    ways["packed, in sentence-transformers' encode"] = lambda: ours.encode(texts)
    ways[OURS] = lambda: cores.encode(texts)
    ways["sentence-experts encode, a graph"] = lambda: graph.encode(texts)
    ways["sentence-experts encode, a graph in 8 bits"] = lambda: eight.encode(texts)
    return ways


def compared(ways: dict[str, Callable[[], object]], rounds: int, work: float) -> dict[str, Any]:
    """Medians of the ways' seconds, ratios, and shares of the peak for `work` floating-point operations."""
    import torch

    seconds = in_turn(ways, rounds, time.perf_counter)
    peak = gemm_flops(torch.get_num_threads())
    medians = {way: statistics.median(each) for way, each in seconds.items()}
    return {
        "seconds": medians,
        "ratio": {way: ratio(seconds, PEER, way) for way in seconds},
        "share_of_peak": {way: work / medians[way] / peak for way in seconds},
        "gemm_gflops": peak / 1e9,
    }


def cost_of_8_bits(whole: Any, eight: Any, held: list[str]) -> list[list[str]]:
    """Cosines on texts that were not calibrated on; Spearman and F1max on STS with either."""
    import numpy as np
    from scipy.stats import spearmanr

    from sentence_experts.encoding.encoder import cosines
    from sentence_experts.evaluation.metrics import pair_metrics
    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs

    found = cosines(whole.encode(held), eight.encode(held))
    rows = [
        ["cosine to fp32 on abstracts and titles: mean, least", "", f"{found.mean():.4f}, {found.min():.4f}"]
    ]
    for name in ("sts16", "stsb_dev"):
        pairs = RatedPairs.read(DATA / "eval" / f"{name}.jsonl.gz")
        scores = [cosines(model.encode(pairs.first), model.encode(pairs.second)) for model in (whole, eight)]
        ranks = [f"{100 * spearmanr(one, pairs.scores).statistic:.2f}" for one in scores]
        alike = np.asarray(pairs.scores) >= ALIKE * max(pairs.scores)
        best = [f"{pair_metrics(one, alike)['f1_max']:.4f}" for one in scores]
        rows.append([f"{name}, Spearman × 100", *ranks])
        rows.append([f"{name}, F1max of pairs scored in the upper fifth", *best])
    return rows


def work_of(model: Any, texts: list[str]) -> float:
    """Floating-point operations of the blocks' matrix multiplications and attention for these texts."""
    config = model[0].auto_model.config
    width, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    lengths = [
        len(ids)
        for ids in model.tokenizer(texts, truncation=True, max_length=model.max_seq_length)["input_ids"]
    ]
    linear = 2 * (4 * width * width + 2 * width * inner) * sum(lengths)
    attention = 4 * width * sum(length * length for length in lengths)
    return float(layers * (linear + attention))


def profile(model: Any, texts: list[str]) -> list[list[str]]:
    """Profile one core on abstracts: operation, share of the time."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    from sentence_experts.models.batching import batches_of_tokens

    lengths = [len(ids) for ids in model.tokenizer(texts)["input_ids"]]
    batch = [texts[place] for place in next(iter(batches_of_tokens(lengths, PROFILED)))]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        for _ in range(2):
            model(model.preprocess(batch))
        with profiler(activities=[ProfilerActivity.CPU]) as seen:
            for _ in range(5):
                model(model.preprocess(batch))
    torch.set_num_threads(threads)
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_cpu_time_total)
    total = sum(row.self_cpu_time_total for row in rows)
    shown = [[row.key.removeprefix("aten::"), f"{row.self_cpu_time_total / total:.0%}"] for row in rows[:6]]
    return [*shown, ["all others", f"{sum(row.self_cpu_time_total for row in rows[6:]) / total:.0%}"]]


def as_text(
    given: argparse.Namespace, found: dict[str, dict[str, Any]], cost: list[list[str]], spent: list[list[str]]
) -> str:
    """The tables."""
    import torch

    ways = next(iter(found.values()))["seconds"]
    rows = [
        [way, *(f"{one['ratio'][way]:.2f} ({one['share_of_peak'][way]:.0%})" for one in found.values())]
        for way in ways
    ]
    return "\n".join(
        [
            "# Texts to vectors on the CPU",
            "",
            f"{given.texts:,} texts of each kind, all-MiniLM-L6-v2, fp32 but for the last, "
            f"{torch.get_num_threads()} threads, medians of {given.rounds} rounds; times as fast as "
            "sentence-transformers' encode (share of the measured peak of matrix multiplication). Made by "
            "`python benchmarks/encode.py`.",
            "",
            table(["", *found], rows),
            "",
            "What 8 bits cost:",
            "",
            table(["", "fp32", "8 bits"], cost),
            "",
            "Where one core's time goes on abstracts, packed:",
            "",
            table(["operation", "share"], spent),
        ]
    )


def main() -> None:
    """Measure, and write the tables."""
    given = options(__doc__, texts=1000, rounds=5)
    from sentence_transformers import SentenceTransformer

    import sentence_experts as se
    from sentence_experts.models.architectures.packed_forward import use_packing
    from sentence_experts.models.sources import model_folder

    folder = model_folder("minilm")
    peer = SentenceTransformer(folder, device="cpu")
    ours = use_packing(SentenceTransformer(folder, device="cpu"))
    titles, abstracts = elife_texts(given.texts + 2 * CALIBRATED)
    after = slice(given.texts, given.texts + CALIBRATED)
    held = titles[-CALIBRATED:] + abstracts[-CALIBRATED:]
    with tempfile.TemporaryDirectory() as place:
        texts = [text for pair in zip(titles[after], abstracts[after], strict=True) for text in pair]
        graph = se.load(se.export("minilm", Path(place) / "graph", format="onnx").out)
        eight = se.load(se.export("minilm", Path(place) / "eight", format="onnx", int8=texts).out)
    titles, abstracts = titles[: given.texts], abstracts[: given.texts]
    half = given.texts // 2
    kinds = {"titles": titles, "abstracts": abstracts, "mix": titles[:half] + abstracts[:half]}
    found = {}
    for kind, texts in kinds.items():
        ways = ways_to(texts, peer, ours, graph, eight)
        found[kind] = compared(ways, given.rounds, work_of(peer, texts))
        print(kind, found[kind]["ratio"], flush=True)
    spent, cost = profile(ours, abstracts[:40]), cost_of_8_bits(peer, eight, held)
    result = {**vars(given), "kinds": found, "profile": spent, "cost_of_8_bits": cost}
    result["versions"] = versions("onnxruntime")
    write("encode", result, as_text(given, found, cost, spent))


if __name__ == "__main__":
    main()

"""Experts on a GPU: encoding, mixed batches, paged experts, training steps. Writes its table.

    python benchmarks/gpu.py [--texts 2000] [--experts 5 20 64] [--rounds 5]      (`make bench-gpu`)

all-MiniLM-L6-v2 and generated texts of random words, as long as titles (20 tokens) and as abstracts (230):
nothing but the package is needed. Ways of encoding alternate; figures are medians over the rounds. Memory is
the largest of the device: what encoding adds, and with the model what paging and training take. Flash
Attention 2 takes part where flash-attn is installed. Without a GPU it says so and exits with 2.
"""

from __future__ import annotations

import gc
import importlib.util
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from measuring import in_turn, options, table, versions, write
from training_step import step_of

NO_GPU = "no GPU: torch.cuda.is_available() is false; nothing was measured"
WORDS = {"titles": 18, "abstracts": 228}
PEER = "float32, sdpa"
FLASH = "flash_attention_2"
DENSE, LOADED = "dense", "all experts loaded"


@dataclass(frozen=True)
class Sizes:
    """Amounts that are measured.

    Attributes:
        texts: number of texts of each kind.
        batch_size: texts per batch, pairs per training step.
        experts: numbers of experts of the mixed batches and the training steps.
        turns: routes that are encoded one after another where experts are paged.
        rounds: of every measurement.
    """

    texts: int = 2000
    batch_size: int = 256
    experts: tuple[int, ...] = (5, 20, 64)
    turns: int = 8
    rounds: int = 5


class Meter:
    """Seconds and the largest memory of work on a device."""

    def __init__(self, device: str) -> None:
        self.device = device

    def clock(self) -> float:
        """Seconds, when everything that was asked of the device is done."""
        import torch

        if self.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()

    def seconds(self, ways: Mapping[Any, Callable[[], object]], rounds: int) -> dict[Any, float]:
        """The median of each way; the ways alternate."""
        return {way: statistics.median(each) for way, each in in_turn(ways, rounds, self.clock).items()}

    def allocated(self) -> float:
        """The megabytes of the device that hold something; 0 on a CPU."""
        import torch

        gc.collect()
        return 0.0 if self.device == "cpu" else torch.cuda.memory_allocated() / 1e6

    def megabytes(self, work: Callable[[], object], since: float) -> float | None:
        """The most that the device held while the work ran, beyond `since`; None on a CPU."""
        import torch

        if self.device == "cpu":
            return None
        torch.cuda.reset_peak_memory_stats()
        work()
        return float(torch.cuda.max_memory_allocated() / 1e6) - since


def generated_texts(folder: str, count: int, words: int) -> list[str]:
    """Texts of random whole words of the model's vocabulary."""
    from transformers import AutoTokenizer

    vocabulary = sorted(word for word in AutoTokenizer.from_pretrained(folder).get_vocab() if word.isalpha())
    draw = random.Random(0)
    return [" ".join(draw.choices(vocabulary, k=words)) for _ in range(count)]


def opened(folder: str, device: str, dtype: str = "float32", attention: str = "sdpa") -> Any:
    """A model on the device."""
    from sentence_transformers import SentenceTransformer

    import sentence_experts.register  # noqa: F401
    from sentence_experts.models.encoder import ExpertEncoder

    kind = ExpertEncoder if "experts" in Path(folder).name else SentenceTransformer
    return kind(folder, device=device, model_kwargs={"dtype": dtype, "attn_implementation": attention})


def encode_rows(folders: Mapping[int, str], meter: Meter, sizes: Sizes) -> list[dict[str, Any]]:
    """Encoding by number type and attention: seconds, memory, cosine to the same model's float32.

    The dense model by sentence-transformers' own `encode`, and one route of a model with experts.
    """
    from sentence_experts.encoding.encoder import cosines

    kinds = [(dtype, "sdpa") for dtype in ("float32", "float16", "bfloat16")]
    if importlib.util.find_spec("flash_attn") is not None:
        kinds += [(dtype, FLASH) for dtype in ("float16", "bfloat16")]
    names = {DENSE: folders[0], "experts": folders[min(sizes.experts)]}
    models = {
        (name, f"{dtype}, {how}"): opened(folder, meter.device, dtype, how)
        for name, folder in names.items()
        for dtype, how in kinds
    }
    rows = []
    for kind, words in WORDS.items():
        texts = generated_texts(folders[0], sizes.texts, words)
        ways: dict[tuple[str, str], Callable[[], Any]] = {}
        for way, model in models.items():
            route = {} if way[0] == DENSE else {"prompt_name": model.routes[0].name}
            ways[way] = partial(model.encode, texts, batch_size=sizes.batch_size, **route)
        seconds = meter.seconds(ways, sizes.rounds)
        exact = {name: ways[name, PEER]().astype("float32") for name in names}
        for (name, how), encode in ways.items():
            rows.append(
                {
                    "model": name,
                    "way": how,
                    "texts": kind,
                    "texts_per_second": len(texts) / seconds[name, how],
                    "ratio": seconds[DENSE, PEER] / seconds[name, how],
                    "megabytes": meter.megabytes(encode, meter.allocated()),
                    "min_cosine": float(cosines(exact[name], encode().astype("float32")).min()),
                }
            )
    return rows


def mixed_rows(folders: Mapping[int, str], meter: Meter, sizes: Sizes) -> list[dict[str, Any]]:
    """One batch of texts of all routes, beside the dense model on the same texts."""
    import torch

    rows = []
    for experts in sizes.experts:
        models = {DENSE: opened(folders[0], meter.device), "experts": opened(folders[experts], meter.device)}
        leads = {DENSE: [""], "experts": [route.text for route in models["experts"].routes]}
        for dtype in ("float32", "bfloat16"):
            for kind, words in WORDS.items():
                texts = generated_texts(folders[0], sizes.batch_size, words)
                ways = {
                    way: partial(forward, model.to(getattr(torch, dtype)), in_turns(leads[way], texts))
                    for way, model in models.items()
                }
                seconds = meter.seconds(ways, sizes.rounds)
                row = {"experts": experts, "texts": kind, "dtype": dtype}
                rows.append({**row, "ratio": seconds["experts"] / seconds[DENSE]})
    return rows


def in_turns(leads: Sequence[str], texts: Sequence[str]) -> list[str]:
    """The texts with the leads in front of them, one after another."""
    return [leads[number % len(leads)] + text for number, text in enumerate(texts)]


def forward(model: Any, texts: list[str]) -> None:
    """The vectors of a batch, which stay on the device."""
    import torch
    from sentence_transformers.util import batch_to_device

    with torch.inference_mode():
        model(batch_to_device(model.preprocess(texts), model.device))


def paging_rows(folder: str, meter: Meter, sizes: Sizes) -> list[dict[str, Any]]:
    """Texts of one route after another, with the experts loaded, on the CPU, or on disk."""
    import sentence_experts

    routes = [route.name for route in opened(folder, "cpu").routes][: sizes.turns]
    texts = generated_texts(folder, sizes.batch_size, WORDS["abstracts"])

    def turns(model: Any, before: Callable[[Any, int], object]) -> None:
        for number, route in enumerate(routes):
            before(model, number)
            model.encode(texts, prompt_name=route, batch_size=sizes.batch_size)

    def move(model: Any, number: int) -> None:
        model.use_routes([routes[number]], idle="cpu")

    ways: dict[str, tuple[dict[str, Any], Callable[[Any, int], object]]] = {
        LOADED: ({}, nothing),
        "one loaded, the others on the CPU": ({}, move),
        "one loaded, the others on disk": ({"max_resident_experts": 1}, nothing),
    }
    rows: list[dict[str, Any]] = []
    for way, (settings, before) in ways.items():
        since = meter.allocated()
        model: Any = sentence_experts.load(folder, device=meter.device, **settings)
        work = partial(turns, model, before)
        seconds = meter.seconds({way: work}, sizes.rounds)[way]
        rows.append({"way": way, "seconds": seconds, "megabytes": meter.megabytes(work, since)})
        del model, work
    return [{**row, "ratio": row["seconds"] / rows[0]["seconds"]} for row in rows]


def nothing(model: Any, number: int) -> None:
    """Do nothing before a turn."""


def training_rows(folders: Mapping[int, str], meter: Meter, sizes: Sizes) -> list[dict[str, Any]]:
    """A training step of one route's pairs, and of mixed routes, beside the dense model."""
    import torch

    pairs = [generated_texts(folders[0], sizes.batch_size, words) for words in (18, 19)]
    rows = []
    for experts in folders:
        since = meter.allocated()
        model = opened(folders[experts], meter.device)
        routes = [route.text for route in model.routes] if experts else [""]
        batches = {"one route": routes[:1], "all routes": routes} if experts else {DENSE: routes}
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)  # as `train` has it
        for lead in routes:  # every expert has moments from here on
            step_of(model, ([lead + pairs[0][0]], [lead + pairs[1][0]]), optimizer)()
        for batch, leads in batches.items():
            anchors, positives = (in_turns(leads, side) for side in pairs)
            step = step_of(model, (anchors, positives), optimizer)
            for dtype in ("float32", "bfloat16"):
                way = partial(in_precision, meter.device, dtype, step)
                row = {"experts": experts, "batch": batch, "dtype": dtype}
                seconds = meter.seconds({"step": way}, sizes.rounds)["step"]
                row |= {
                    "pairs_per_second": sizes.batch_size / seconds,
                    "megabytes": meter.megabytes(way, since),
                }
                rows.append(row)
        del model, optimizer, step, way
    return rows


def in_precision(device: str, dtype: str, step: Callable[[], object]) -> None:
    """A step with this number type where autocast takes it."""
    import torch

    with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
        step()


def measure(base: str, folder: Path, device: str, sizes: Sizes) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Measure with models that are made in `folder`, and yield each table with its name."""
    import sentence_experts
    from sentence_experts.models.files.saving import save

    folders = {0: base}
    for experts in sizes.experts:
        names = [f"domain{number}" for number in range(experts)]
        folders[experts] = str(folder / f"experts{experts}")
        save(sentence_experts.extend(base, names), folders[experts])
    meter = Meter(device)
    yield "mixed", mixed_rows(folders, meter, sizes)
    yield "training", training_rows(folders, meter, sizes)
    yield "paging", paging_rows(folders[max(sizes.experts)], meter, sizes)
    yield "encode", encode_rows(folders, meter, sizes)


def as_text(found: Mapping[str, list[dict[str, Any]]], machine: str, sizes: Sizes) -> str:
    """One table per measurement, its columns as the rows name them."""
    lines = [
        "# On a GPU",
        "",
        f"{machine}; all-MiniLM-L6-v2, {sizes.texts:,} generated texts, batches of {sizes.batch_size}, "
        f"medians of {sizes.rounds} rounds. Encoding relative to the dense model in float32 by "
        "sentence-transformers, mixed batches to the dense model, paging to all experts loaded. Made by "
        "`python benchmarks/gpu.py`.",
    ]
    for name, rows in found.items():
        header = [column.replace("_", " ") for column in rows[0]]
        cells = [[shown(value) for value in row.values()] for row in rows]
        lines += ["", f"{name.capitalize()}:", "", table(header, cells)]
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A cell."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.4f}" if value > 0.99 else f"{value:.2f}"
    return "" if value is None else str(value)


def main() -> int:
    """Measure, and write the tables."""
    given = options(
        __doc__,
        texts=Sizes.texts,
        batch_size=Sizes.batch_size,
        experts=list(Sizes.experts),
        rounds=Sizes.rounds,
    )
    import torch

    if not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 2
    from sentence_experts.models.sources import model_folder

    sizes = Sizes(given.texts, given.batch_size, tuple(given.experts), rounds=given.rounds)
    machine = torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name, rows in measure(model_folder("minilm"), Path(folder), "cuda", sizes):
            found[name] = rows
            write("gpu", {"gpu": machine, **found, "versions": versions()}, as_text(found, machine, sizes))
    return 0


if __name__ == "__main__":
    sys.exit(main())

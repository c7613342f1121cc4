"""Forward and training step of a batch of texts of many routes, compared with the dense model.

    python benchmarks/mixed_batch.py [--kinds head adapter expert] [--routes 5 20] [--tokens 100 200 400]

all-MiniLM-L6-v2's shape, real titles and abstracts, one thread and its process time. Both models get the same
texts in one batch, packed, and the texts of a batch spread evenly over the routes. What the routes cost is
then what comes on top: more weights to read, and smaller matrices. The step is forward, in-batch negatives
loss and backward (the optimizer's share grows with the weights and is measured by training_step.py).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from measuring import elife_texts, in_turn, options, ratio, table, write


def batch_of(model: Any, texts: list[str], count: int, tokens: int, leads: list[str]) -> dict[str, Any]:
    """Features of texts of alternating routes, with this number of tokens per route."""
    picked, counted = [], [0] * count
    for number, text in enumerate(texts):
        route = number % count
        if counted[route] < tokens:
            picked.append(leads[route] + text)
            counted[route] += len(model.tokenizer(picked[-1])["input_ids"])
        if min(counted) >= tokens:
            break
    features: dict[str, Any] = model.preprocess(picked)
    return features


def forward(model: Any, features: dict[str, Any]) -> Callable[[], object]:
    """Encodes the batch."""
    import torch

    def run() -> object:
        with torch.inference_mode():
            return model(dict(features))

    return run


def step(model: Any, features: dict[str, Any]) -> Callable[[], object]:
    """Forward, a contrastive loss of the batch's halves, backward."""
    import torch

    def run() -> None:
        vectors = model(dict(features))["sentence_embedding"]
        half = len(vectors) // 2
        scores = vectors[:half] @ vectors[half : 2 * half].T * 20
        torch.nn.functional.cross_entropy(scores, torch.arange(half)).backward()
        model.zero_grad(set_to_none=True)  # or they would be in memory while the other model steps

    return run


def as_text(rows: list[list[str]]) -> str:
    """The table."""
    header = [
        "kind",
        "routes",
        "texts",
        "tokens of the batch",
        "tokens per route",
        "forward",
        "training step",
    ]
    return "\n".join(
        [
            "# Mixed batches compared with the dense model",
            "",
            "Times as long as the dense model on the same texts, packed alike; all-MiniLM-L6-v2, fp32, one "
            "thread, process time, medians. Made by `python benchmarks/mixed_batch.py`.",
            "",
            table(header, rows),
        ]
    )


def main() -> None:
    """Measure, and write the table."""
    given = options(
        __doc__, kinds=["head", "adapter", "expert"], routes=[5, 20], tokens=[100, 200, 400], rounds=7
    )
    import torch

    torch.set_num_threads(1)
    import sentence_experts

    titles, abstracts = elife_texts(1000)
    texts = {"titles": titles, "abstracts": abstracts}
    found, rows = [], []
    for kind, count in itertools.product(given.kinds, given.routes):
        names = [f"domain{number}" for number in range(count)]
        ours = sentence_experts.extend("minilm", routes=names, kind=kind)
        dense = sentence_experts.extend("minilm", names, layers="none")
        for tokens in given.tokens:
            for unit in texts if tokens >= 400 else ("titles",):
                leads = [ours.prompts[name] or "" for name in names]
                features = batch_of(ours, texts[unit], count, tokens, leads)
                held = int(features["attention_mask"].sum())
                row: dict[str, Any] = {
                    "kind": kind, "routes": count, "texts": unit, "tokens": held, "each": held // count,
                }  # fmt: skip
                for what, way in (("forward", forward), ("step", step)):
                    for model in (ours, dense):
                        model.train(what == "step")
                    ways = {"ours": way(ours, features), "dense": way(dense, features)}
                    seconds = in_turn(ways, given.rounds, time.process_time)
                    row[what] = ratio(seconds, "ours", "dense")
                print(row, flush=True)
                found.append(row)
                shown = [kind, str(count), unit, f"{held:,}", str(row["each"])]
                rows.append([*shown, f"{row['forward']:.3f}", f"{row['step']:.3f}"])
                write("mixed_batch", {"rows": found}, as_text(rows))  # what is measured is kept


if __name__ == "__main__":
    main()

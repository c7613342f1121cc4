"""A small tasks folder with planted topics, and small encoders for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from helpers.samples import TOPICS, make_tiny_encoder
from sentence_experts.tasks.dataset import PAIRS_SCHEMA, Tasks
from sentence_experts.tasks.split import SPLITS

INSTRUCTIONS = {
    "query": "search query: ",
    "document": "search document: ",
    "classification": "classification: ",
    "clustering": "clustering: ",
}
DATASETS = {"retrieval": ("plants", "brains"), "classification": ("fields",), "clustering": ("a", "b")}
SIZES = {"train": 24, "validation": 8, "test": 8}


def _words(topic: str, generator: random.Random, count: int = 4) -> str:
    filler = ["study", "result", "method", "model", "effect", "measure"]
    return " ".join(generator.choices(topic.split(), k=count) + generator.choices(filler, k=2))


def _rows(task: str, dataset: str, split: str, size: int, generator: random.Random) -> list[dict]:
    topics = [topic for topics in TOPICS.values() for topic in topics]
    rows = []
    for number in range(size):
        topic = number % len(topics)
        name = f"{split}-{dataset}-{number}"
        group = name if task == "retrieval" else str(topic)
        anchor = f"{name} {_words(topics[topic], generator)}"
        positive = f"{_words(topics[topic], generator)} {name}"
        extra: dict[str, Any] = {"group": group, "negative": None, "score": None}
        rows.append(
            extra
            | {"anchor_id": f"{name}-a", "positive_id": f"{name}-p", "anchor": anchor, "positive": positive}
        )
    return rows


def make_tasks_folder(
    folder: Path, fields: dict | None = None, negatives: bool = False, sizes: dict[str, int] | None = None
) -> Tasks:
    """A tasks folder: retrieval of two datasets, classification of one, clustering of two.

    `fields` go over a task's own in the task file; `negatives` gives retrieval one mined negative per pair.
    """
    generator = random.Random(5)
    counts: dict = {}
    tables = {}
    hierarchy = {}
    for task, datasets in DATASETS.items():
        columns = {"negative": "hard"} if negatives and task == "retrieval" else {}
        hierarchy[task] = {"kind": task, **(fields or {}).get(task, {})}
        hierarchy[task]["datasets"] = {name: {"file": "rows.jsonl", **columns} for name in datasets}
        for dataset in datasets:
            for split in SPLITS:
                rows = _rows(task, dataset, split, (sizes or SIZES)[split], generator)
                if columns:
                    texts = [row["positive"] for row in rows]
                    for number, row in enumerate(rows):
                        row["negative"] = texts[(number + 3) % len(rows)]
                table = pa.Table.from_pylist(rows, PAIRS_SCHEMA)
                tables[f"{task}/{dataset}/{split}.parquet"] = table
                counts.setdefault(task, {}).setdefault(dataset, {})[split] = len(rows)
    manifest = {"hierarchy": {"tasks": hierarchy}, "counts": counts}
    return Tasks.in_memory(tables, manifest).save(folder)


def make_task_encoder(folder: Path, minilm: str, **options: object) -> Path:
    """The tiny encoder with an expert for each of the folder's routes, without dropout."""
    import torch
    from sentence_transformers import SentenceTransformer

    import sentence_experts

    plain = make_tiny_encoder(folder.with_name(f"{folder.name}-base"), minilm)
    base = SentenceTransformer(str(plain), device="cpu")
    transformer: Any = base[0]
    config = transformer.auto_model.config
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    chosen: dict[str, Any] = {"route": "prefix", "prefixes": INSTRUCTIONS, "expert_norms": True} | options
    encoder = sentence_experts.extend(base, list(INSTRUCTIONS), **chosen)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            if ".experts." in name or ".router." in name:
                weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    encoder.save(str(folder), create_model_card=False)
    return folder


class NoRoutes:
    """Stands for a dense model without prompts."""

    def __init__(self) -> None:
        self.prompts: dict[str, str] = {}

    def modules(self) -> list:
        return []

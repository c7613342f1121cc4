"""Made-up inputs for tests on tasks: rows of every kind, a tasks folder, an encoder with task routes."""

from __future__ import annotations

import json
import random
from pathlib import Path

from helpers.samples import TOPICS

ROUTES = ("query", "document", "classification", "clustering")
TASKS = """
tasks:
  retrieval: {kind: retrieval, datasets: {papers: {file: pairs.jsonl}}}
  classification: {kind: classification, datasets: {topics: {files: {train: train.jsonl, test: test.jsonl}}}}
  clustering: {kind: clustering, datasets: {topics: {files: {train: train.jsonl, test: test.jsonl}}}}
  reranking: {kind: reranking, datasets: {papers: {files: {test: rerank.jsonl}}}}
  same: {kind: pair_classification, datasets: {papers: {files: {test: same.jsonl}}}}
  sts: {kind: sts, datasets: {papers: {files: {test: sts.jsonl}}}}
"""


def phrase(words: str, generator: random.Random) -> str:
    filler = ["study", "result", "method", "model", "effect", "measure", "control", "sample"]
    return " ".join(generator.choices(words.split(), k=4) + generator.choices(filler, k=3))


def write_rows(folder: Path, name: str, rows: list[dict]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_task_rows(folder: Path, seed: int = 3) -> None:
    generator = random.Random(seed)
    topics = [topic for domain in TOPICS.values() for topic in domain]

    def pair(first: int, second: int) -> dict:
        return {"anchor": phrase(topics[first], generator), "positive": phrase(topics[second], generator)}

    write_rows(folder, "pairs.jsonl", [pair(n % 8, n % 8) for n in range(80)])
    write_rows(folder, "rerank.jsonl", [pair(n % 8, n % 8) for n in range(40)])
    labelled = [{"text": phrase(topics[n % 4], generator), "label": f"topic {n % 4}"} for n in range(120)]
    write_rows(folder, "train.jsonl", labelled[:60])
    write_rows(folder, "test.jsonl", labelled[60:])
    scored = [(n % 8, (n + n % 3) % 8) for n in range(30)]
    write_rows(folder, "sts.jsonl", [pair(a, b) | {"score": 5.0 - abs(a - b) / 2} for a, b in scored])
    write_rows(folder, "same.jsonl", [pair(a, b) | {"score": int(a == b)} for a, b in scored])


def make_tasks_folder(folder: Path) -> Path:
    """A tasks folder with every kind, compiled from rows in `folder`."""
    from sentence_experts.tasks.compile import compile_tasks

    make_task_rows(folder)
    (folder / "tasks.yaml").write_text(TASKS)
    compile_tasks(folder / "tasks.yaml", out=folder / "tasks")
    return folder / "tasks"


def make_task_model(folder: Path, plain: Path, seed: int = 0) -> Path:
    """An encoder with one expert per task, reached by instructions; no two experts are equal."""
    import torch

    import sentence_experts

    encoder = sentence_experts.extend(str(plain), ROUTES, route="prefix")
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in encoder.named_parameters():
            if ".experts." in name:
                weight.add_(0.1 * torch.randn_like(weight))
    encoder.save(str(folder), create_model_card=False)
    return folder

"""A small task file with made-up rows: retrieval, classification, clustering and STS."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import yaml

from sentence_experts.tasks.compile import compile_tasks
from sentence_experts.tasks.config import TasksConfig
from sentence_experts.tasks.dataset import Tasks

CROPS = ("rice", "wheat", "maize", "barley", "millet")
MOODS = ("glad", "sad", "cross")


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    """Rows as JSON lines, gzipped if the name says so; gives the file's name."""
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode(), mtime=0))
    else:
        path.write_text(lines, encoding="utf-8")
    return path.name


def questions(count: int) -> list[dict[str, Any]]:
    """Question and passage; two questions in a row share their passage."""
    return [
        {
            "question": f"How does plant {n} grow?",
            "passage": f"Plant {n // 2} grows in {CROPS[n // 2 % 5]} soil.",
        }
        for n in range(count)
    ]


def moods(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {"text": f"I am {MOODS[n % 3]} today, {n}", "label": MOODS[n % 3]}
        for n in range(start, start + count)
    ]


def posts(count: int) -> list[dict[str, Any]]:
    """Posts in threads of four, the later ones replies."""
    return [
        {
            "subject": f"{'Re: ' * (n % 4)}{CROPS[n // 4 % 5]} thread {n // 4}",
            "body": f"Words of post {n}.",
            "label": CROPS[n // 4 % 5],
        }
        for n in range(count)
    ]


def task_content(folder: Path) -> dict[str, Any]:
    """Return a task file's content, and write its rows to `folder`."""
    write_rows(folder / "questions.jsonl.gz", questions(80))
    write_rows(folder / "train.jsonl", moods(60))
    write_rows(folder / "test.jsonl", moods(15, start=60))
    write_rows(folder / "sts.jsonl", [{"a": f"one {n}", "b": f"two {n}", "score": n / 2} for n in range(9)])
    with open(folder / "posts.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["subject", "body", "label"])
        writer.writeheader()
        writer.writerows(posts(160))
    posts_source = {"file": "posts.csv", "text": ["subject", "body"], "group": "subject"}
    return {
        "retrieval": {
            "kind": "retrieval",
            "datasets": {
                "plants": {"file": "questions.jsonl.gz", "anchor": "question", "positive": "passage"}
            },
        },
        "classification": {
            "kind": "classification",
            "datasets": {"moods": {"files": {"train": "train.jsonl", "test": "test.jsonl"}}},
        },
        "clustering": {
            "kind": "clustering",
            "experts": {"clustering": "document"},
            "datasets": {"posts": posts_source},
        },
        "sts": {
            "kind": "sts",
            "datasets": {"small": {"file": "sts.jsonl", "anchor": "a", "positive": "b"}},
        },
    }


def write_task_file(folder: Path, tasks: dict[str, Any]) -> Path:
    path = folder / "tasks.yaml"
    path.write_text(yaml.safe_dump({"tasks": tasks}, sort_keys=False), encoding="utf-8")
    return path


def compiled(folder: Path, tasks: dict[str, Any], **settings: Any) -> Tasks:
    """Compile the tasks to `folder`/out; small sets need large shares, or one gets nothing."""
    chosen = TasksConfig.model_validate({"fractions": (0.6, 0.2, 0.2), **settings})
    return compile_tasks(write_task_file(folder, tasks), chosen, folder / "out", overwrite=True)

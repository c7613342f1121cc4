"""The model card of a model trained on tasks: what it is, how to use it, how it was trained, how it did."""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml
from sentence_transformers import SentenceTransformer

from sentence_experts.tasks.dataset import TasksFolder
from sentence_experts.training.card import METADATA, architecture, prompt_argument, trained
from sentence_experts.training.task_data import TrainingTasks
from sentence_experts.training.task_evaluator import NDCG

BATCHES = {"homogeneous": "one dataset", "heterogeneous": "all datasets of the task"}


def task_card(
    model: SentenceTransformer, tasks: TrainingTasks, folder: TasksFolder, result: dict[str, Any]
) -> str:
    """README.md of a model trained on these tasks."""
    routes = {name: prompt for name, prompt in model.prompts.items() if prompt}
    names = ", ".join(task.name for task in tasks.settings)
    config = result["config"]
    best = next(entry for entry in result["history"] if entry["step"] == result["best_step"])
    together = result["processes"]
    size = config["batch_size"] * together
    return f"""---
{yaml.safe_dump(METADATA, sort_keys=False)}---
# A text encoder for {names}

{architecture(model, routes)}

## Use

```python
import sentence_experts  # makes the model type known
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["a text", "another"]{prompt_argument(routes)})
```

## Training

Contrastive training on tasks (InfoNCE over cosines; tasks folder {folder.fingerprint()[:12]}). Each batch of
{size:,} pairs{f", put together by {together} processes," if together > 1 else ""} is of one task:

| task | pairs | datasets | a batch is of | temperature | nDCG@10 on validation |
|---|---|---|---|---|---|
{_rows(tasks, best)}

{trained(config)}The step with the best mean of these figures was kept: step {result["best_step"]} of
{result["steps"]}, {best[f"eval_validation_{NDCG}"]:.4f}. They chose the step, so they are not what to expect
on new texts: see an evaluation on the test splits. Settings:

```yaml
{yaml.safe_dump(config, sort_keys=False)}```
"""


def _rows(tasks: TrainingTasks, best: dict[str, Any]) -> str:
    counts = np.bincount(tasks.places[:, 0], minlength=len(tasks.settings))
    return "\n".join(
        f"| {task.name} | {count:,} | {', '.join(task.datasets)} | {BATCHES[task.batches]} | "
        f"{task.temperature:g} | {best[f'eval_validation_{task.name}_{NDCG}']:.4f} |"
        for task, count in zip(tasks.settings, counts, strict=True)
    )

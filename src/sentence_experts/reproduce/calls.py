"""Calls of public functions that give or take objects, with folders in their place.

Steps call the other public functions, such as `train`, as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sentence_experts
from sentence_experts.moee.vectors import PARTS


def extend(
    base: str, out: Path, experts: Sequence[str] = (), tasks: Path | None = None, **settings: Any
) -> None:
    """Extend a base and save the model."""
    from sentence_experts.models.encoder import save

    save(sentence_experts.extend(base, list(experts) or None, tasks=tasks, **settings), out)


def average_experts(model: Path, out: Path) -> None:
    """Save the dense model whose MLPs are the means of a model's experts."""
    from sentence_experts.models.encoder import check_experts, save
    from sentence_experts.models.surgery.merge import average_experts

    save(average_experts(check_experts(sentence_experts.load(model))), out)


def evaluate(
    models: Mapping[str, Any], data: Any, out: Path, baseline: Mapping[str, str] = {}, **settings: Any
) -> None:
    """Evaluate models, label -> folder or the folders of its seeds, and write the report."""
    from sentence_experts.report.write import write_report

    evaluation = sentence_experts.evaluate(models, data, out=out, baseline=baseline, **settings)
    write_report(evaluation, out)


def evaluate_language_model(
    model: str, data: Any, out: Path, prompt: str, read: Mapping[str, Any], states: Path, **settings: Any
) -> None:
    """Evaluate hidden states, routing weights and their combinations; texts are read once for all."""
    embedder = sentence_experts.MoeEmbedder(model, prompt=prompt, cache=states, **read)
    evaluate({part: embedder.with_parts(part) for part in PARTS}, data, out, **settings)

"""Calls of public functions that give or take objects, with folders in their place.

Steps call the other public functions, such as `train`, as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sentence_experts
from sentence_experts.moee.vectors import PARTS


def average_experts(model: Path, out: Path, overwrite: bool = False) -> None:
    """Save the dense model whose MLPs are the means of a model's experts."""
    from sentence_experts.models.dense import average_experts
    from sentence_experts.models.encoder import check_experts
    from sentence_experts.models.files.saving import save

    save(average_experts(check_experts(sentence_experts.load(model))), out, overwrite)


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


def analyse_language_model(
    model: str,
    pairs: Path,
    out: Path,
    read: Mapping[str, Any],
    states: Path,
    published: Path,
    **settings: Any,
) -> None:
    """Analyse hidden states and routing weights; `published_cases` is what they say of the paper's pairs."""
    from sentence_experts.evaluation.moee.analysis import analyse, find_cases
    from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
    from sentence_experts.report.write import write_report
    from sentence_experts.reproduce.published import Published
    from sentence_experts.storage import write_json

    embedder = sentence_experts.MoeEmbedder(model, cache=states, **read)
    data = RatedPairs.read(pairs)
    analysis = analyse(embedder, data, **settings)
    pairs_of_paper = [(case.first, case.second) for case in Published.read(published).cases]
    figures = {**analysis.figures, "published_cases": find_cases(embedder, data, pairs_of_paper)}
    write_report(analysis, out)
    write_json(out / "analysis.json", {**figures, "settings": analysis.settings})

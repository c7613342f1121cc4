"""The main job from articles to search, on real articles or a simulated corpus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.demo.config import DemoConfig
from sentence_experts.reproduce.material import Material, data_folder
from sentence_experts.reproduce.steps import Step

if TYPE_CHECKING:
    from sentence_experts.evaluation.results import PairEvaluation
    from sentence_experts.retrieval.search import SearchResult


def choose_material(out: Path, config: DemoConfig) -> Material:
    """The articles of the demo, written to `out` if they are simulated.

    Raises:
        InputError: SENTENCE_EXPERTS_DATA is set, but the articles are not there.
    """
    material = Material.find(out / "simulated", None if config.simulated else data_folder())
    material.prepare(config.seed)
    return material


def demo_steps(material: Material, out: Path, config: DemoConfig, base: str = "minilm") -> list[Step]:
    """Import, pairs, a dense control and a model with experts, trained alike, evaluation."""
    corpus, pairs, untrained, runs = out / "corpus", out / "pairs", out / "untrained", out / "runs"
    training: dict[str, Any] = {
        "max_steps": config.steps,
        "batch_size": 32,
        "batches": "homogeneous",
        "seed": config.seed,
        "eval_steps": max(1, config.steps // 4),
    }
    planned = [
        Step("import_corpus", {"sources": list(material.sources), "out": corpus}, corpus / "manifest.json"),
        Step(
            "compile_pairs",
            {"corpus": corpus, "out": pairs},
            pairs / "manifest.json",
            {"domains": material.rules, **material.pairs, "seed": config.seed},
            (corpus / "manifest.json",),
        ),
    ]
    made_from = (pairs / "manifest.json",)
    # The control: the same domain tokens, data and steps, but one MLP for all domains.
    for name, layers in (("dense", "none"), ("experts", "all")):
        model = untrained / name
        arguments = {"base": base, "out": model, "experts": material.domains}
        planned.append(Step("extend", arguments, model, {"layers": layers}))
        run = {"model": str(model), "data": pairs, "out": runs / name}
        trained = runs / name / "run.json"
        planned.append(Step("train", run, trained, training, (model, *made_from)))
    models = {"experts": runs / "experts" / "model", "dense": runs / "dense" / "model"}
    baseline = {"TF-IDF": "tfidf", "base": base}
    evaluation = out / "evaluation"
    planned.append(
        Step(
            "evaluate",
            {"models": models, "baseline": baseline, "data": pairs, "out": evaluation},
            evaluation / "evaluation.json",
            made_from=(*made_from, *(runs / name / "run.json" for name in ("dense", "experts"))),
            can_be_replaced=True,
        )
    )
    return planned


def measured(out: Path) -> PairEvaluation:
    """The evaluation of all models."""
    from sentence_experts.evaluation.results import PairEvaluation

    return PairEvaluation.read(out / "evaluation")


def searches(material: Material, out: Path) -> Iterator[SearchResult]:
    """The papers nearest to each query of the material, by the model with experts."""
    from sentence_experts.models.loading import load
    from sentence_experts.retrieval.search import search

    model = load(out / "runs" / "experts" / "model")
    for route, query in material.queries.items():
        yield search(model, out / "corpus", query, route=route, unit="title", top_k=5)

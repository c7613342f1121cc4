"""The main job from articles to search, on real articles or a simulated corpus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.demo.config import DemoConfig
from sentence_experts.reproduce.material import Material, data_folder
from sentence_experts.reproduce.steps import Call, Step

if TYPE_CHECKING:
    from sentence_experts.evaluation.results import PairEvaluation
    from sentence_experts.retrieval.search import SearchResult


# Less than the small scale of the recipes, so that the demo takes minutes.
FEWER_PAIRS = {"max_validation_per_domain": 20, "max_eval_per_domain": 100}
BOOTSTRAP = 200


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
    corpus, pairs, runs, evaluation = out / "corpus", out / "pairs", out / "runs", out / "evaluation"
    training: dict[str, Any] = {
        "max_steps": config.steps,
        "batch_size": 16,
        "batches": "homogeneous",
        "seed": config.seed,
        "eval_steps": config.steps,
        "keep": "last",
    }
    planned = [
        Step("import_corpus", {"sources": list(material.sources), "out": corpus}, corpus / "manifest.json"),
        Step(
            "compile_pairs",
            {"corpus": corpus, "out": pairs},
            pairs / "manifest.json",
            {"domains": material.rules, **material.pairs, **FEWER_PAIRS, "seed": config.seed},
            (corpus / "manifest.json",),
        ),
    ]
    made_from = (pairs / "manifest.json",)
    # The control: the same domain tokens, data and steps, but one MLP for all domains.
    for name, layers in (("dense", "none"), ("experts", "all")):
        model = Call("extend", {"base": base, "experts": material.domains, "layers": layers})
        run = {"model": model, "data": pairs, "out": runs / name}
        planned.append(Step("train", run, runs / name / "run.json", training, made_from))
    models = {"experts": runs / "experts" / "model", "dense": runs / "dense" / "model"}
    planned.append(
        Step(
            "evaluate",
            {
                "models": models,
                "baseline": {"TF-IDF": "tfidf", "base": base},
                "data": pairs,
                "out": evaluation,
            },
            evaluation / "evaluation.json",
            {"bootstrap": BOOTSTRAP},
            (*made_from, *(runs / name / "run.json" for name in ("dense", "experts"))),
            can_be_replaced=True,
        )
    )
    return planned


def measured(folder: Path) -> PairEvaluation:
    """The evaluation that a step wrote to the folder."""
    from sentence_experts.evaluation.results import PairEvaluation

    return PairEvaluation.read(folder)


def searches(material: Material, out: Path) -> Iterator[tuple[str, SearchResult]]:
    """Each route of the material's queries, and the papers that its expert finds for the query."""
    from sentence_experts.models.loading import load
    from sentence_experts.retrieval.search import search

    model = load(out / "runs" / "experts" / "model")
    for route, query in material.queries.items():
        yield route, search(model, out / "corpus", query, route=route, unit="title", top_k=3)

"""Two routes for one text, and a third route that is added later, on SIMULATED texts.

A dense model of the same tokens, data and steps stands beside: all its routes share one MLP per block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import sentence_experts as se
from sentence_experts.demo.main_job import DemoConfig, step
from sentence_experts.demo.simulated_texts import simulated_pairs, simulated_papers
from sentence_experts.storage import write_text

if TYPE_CHECKING:
    from sentence_experts.evaluation.results import PairEvaluation

FIRST, ADDED = ("subject", "method"), "place"
ROUTES = (*FIRST, ADDED)
# A text, and for each route one that shares this side alone with it.
QUERY = "drought in rice, studied by sequencing in Kenya"
TEXTS = {
    "subject": "in Norway: drought in rice, seen with a questionnaire",
    "method": "by sequencing: bird migration in Japan",
    "place": "hearing loss, studied by simulation in Kenya",
}
EXPERTS, DENSE = "experts", "dense"
GROWN, FURTHER = f"{EXPERTS}-{ADDED}", f"{DENSE}-{ADDED}"  # the same models once they have the third route
# Three times the default: trained alone, an expert needs a higher rate (benchmarks/results/studies.md).
RATE_OF_ADDED = 6e-5
BOOTSTRAP = 200


class Nearest(NamedTuple):
    """The one of `TEXTS` that is nearest to `QUERY` under a route of a model."""

    route: str
    model: str
    text: str
    cosine: float


def run_route_job(folder: Path, config: DemoConfig, base: str = "minilm") -> PairEvaluation:
    """Simulate texts, train both models on two routes, then on a third one, and evaluate."""
    # The seed stands in the names, so that texts of two seeds never mix.
    rows, papers = (folder / f"simulated-{name}-{config.seed}.jsonl" for name in ("pairs", "papers"))
    simulated = simulated_pairs(ROUTES, config.seed)
    _write_rows(rows, simulated)
    _write_rows(papers, simulated_papers(simulated))
    pairs = se.import_pairs(rows, out=folder / "pairs")
    se.import_corpus(papers=papers, out=folder / "corpus")
    fewer = max(1, config.steps // 2)
    first = {"routes": list(FIRST), "max_steps": config.steps, "eval_steps": config.steps}
    later = {"routes": [ADDED], "max_steps": fewer, "eval_steps": fewer}
    alone = {**later, "only_expert": ADDED, "learning_rate": RATE_OF_ADDED}

    def train(name: str, model: Any, settings: dict[str, Any]) -> None:
        with step(f"train: {name}"):
            options = {"batch_size": 16, "batches": "homogeneous", "keep": "last", "seed": config.seed}
            se.train(model, pairs, out=folder / "runs" / name, **{**options, **settings})

    train(EXPERTS, se.extend(base, list(FIRST)), first)
    # The tokens are all that a dense model has of its routes: it gets the third one's from the beginning.
    train(DENSE, se.extend(base, list(ROUTES), layers="none"), first)
    train(GROWN, se.add_route(model_folder(folder, EXPERTS), ADDED), alone)
    train(FURTHER, model_folder(folder, DENSE), later)
    # Without `EXPERTS`, which lacks the third route; the first two of `GROWN` are its own, to the bit.
    models = {name: model_folder(folder, name) for name in (GROWN, DENSE, FURTHER)}
    with step("evaluate: ROC-AUC under each route"):
        evaluation = se.evaluate(
            models, pairs, out=folder / "evaluation", baseline={"base": base}, bootstrap=BOOTSTRAP
        )
        se.write_report(evaluation, folder / "evaluation")
    return cast("PairEvaluation", evaluation)


def model_folder(folder: Path, name: str) -> Path:
    """Where a trained model stands."""
    return folder / "runs" / name / "model"


def nearest_texts(folder: Path, routes: Sequence[str]) -> list[Nearest]:
    """The nearest of `TEXTS` under each route, by experts and by the dense model."""
    models = {name: se.load(model_folder(folder, name)) for name in (EXPERTS, DENSE)}
    texts = list(TEXTS.values())
    found = []
    for route in routes:
        for name, model in models.items():
            vectors = model.encode([QUERY, *texts], prompt_name=route, normalize_embeddings=True)
            cosine, text = max(zip((vectors[1:] @ vectors[0]).tolist(), texts, strict=True))
            found.append(Nearest(route, name, text, cosine))
    return found


def figures(evaluation: PairEvaluation) -> dict[str, dict[str, float | None]]:
    """Return the ROC-AUC of each model on the test pairs of each route, and their mean."""
    from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN

    measured = {}
    for model in evaluation.models:
        views = {**model.domains, "mean": model.views[PAIR_WEIGHTED_MEAN]}
        measured[model.label] = {name: views[name].metrics["roc_auc"] for name in (*ROUTES, "mean")}
    return measured


def describe_change(folder: Path, evaluation: PairEvaluation) -> list[str]:
    """Say in sentences what the third route did to both models."""
    from sentence_experts.report.verdict import SIMULATED

    measured = figures(evaluation)
    how = {
        EXPERTS: f"an expert was added for {ADDED} and trained alone, at three times the rate",
        DENSE: f"the one model was trained further on {ADDED}",
    }
    lines = [f"{SIMULATED}one training run of each model."]
    for before, after in ((EXPERTS, GROWN), (DENSE, FURTHER)):
        compared = se.compare(model_folder(folder, before), model_folder(folder, after))
        equal = {change.route for change in compared.changes if change.bit_equal} >= set(FIRST)
        # Where vectors are equal, the figures before are those after.
        old, new = measured[after if equal else before], measured[after]
        fates = ", ".join(f"{route} {old[route]:.3f} -> {new[route]:.3f}" for route in FIRST)
        what = f"the vectors of {' and '.join(FIRST)} {'are the same to the bit' if equal else 'changed'}"
        lines.append(f"{before}: {how[before]}; {what}: {fates}; {ADDED} {new[ADDED]:.3f}.")
    return lines


def _write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table as JSON lines."""
    write_text(file, "".join(f"{json.dumps(row)}\n" for row in rows))

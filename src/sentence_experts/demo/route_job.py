"""What experts are for, on SIMULATED texts: one text under two routes, and a third route that is added later.

A dense model of the same tokens, data and steps stands beside: all its routes share one MLP per block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sentence_experts.demo.config import DemoConfig
from sentence_experts.demo.simulated_texts import simulated_pairs, simulated_papers
from sentence_experts.reproduce.steps import Call, Step
from sentence_experts.storage import write_text

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


def route_steps(folder: Path, config: DemoConfig, base: str = "minilm") -> list[Step]:
    """Pairs and a corpus of simulated texts, both models on two routes, both on a third one, evaluation."""
    # The seed stands in the names, so that texts of two seeds never mix.
    rows, papers = (folder / f"simulated-{name}-{config.seed}.jsonl" for name in ("pairs", "papers"))
    pairs, corpus, evaluation = folder / "pairs", folder / "corpus", folder / "evaluation"
    simulated = simulated_pairs(ROUTES, config.seed)
    _write_rows(rows, simulated)
    _write_rows(papers, simulated_papers(simulated))
    compiled = pairs / "manifest.json"
    # Without `EXPERTS`, which lacks the third route; the first two of `GROWN` are its own, to the bit.
    measured = {name: model_folder(folder, name) for name in (GROWN, DENSE, FURTHER)}
    return [
        Step("import_pairs", {"source": rows, "out": pairs}, compiled),
        Step("import_corpus", {"papers": papers, "out": corpus}, corpus / "manifest.json"),
        *_training_steps(folder, compiled, config, base),
        Step(
            "evaluate",
            {"models": measured, "baseline": {"base": base}, "data": pairs, "out": evaluation},
            evaluation / "evaluation.json",
            {"bootstrap": BOOTSTRAP},
            (compiled, *(model.parent / "run.json" for model in measured.values())),
            can_be_replaced=True,
        ),
    ]


def _training_steps(folder: Path, compiled: Path, config: DemoConfig, base: str) -> list[Step]:
    """Both models on the first two routes, then each on the third."""
    options = {"batch_size": 16, "batches": "homogeneous", "keep": "last", "seed": config.seed}
    first = {"routes": list(FIRST), "max_steps": config.steps, "eval_steps": config.steps}
    fewer = max(1, config.steps // 2)
    later = {"routes": [ADDED], "max_steps": fewer, "eval_steps": fewer}
    alone = {**later, "only_expert": ADDED, "learning_rate": RATE_OF_ADDED}

    def train(name: str, model: Call | Path, settings: Mapping[str, Any], *before: str) -> Step:
        run = folder / "runs" / name
        read = (compiled, *(folder / "runs" / each / "run.json" for each in before))
        call = {"model": model, "data": compiled.parent, "out": run}
        return Step("train", call, run / "run.json", {**options, **settings}, read)

    added = Call("add_expert", {"model": model_folder(folder, EXPERTS), "name": ADDED})
    # The tokens are all that a dense model has of its routes: it gets the third one's from the beginning.
    control = Call("extend", {"base": base, "experts": list(ROUTES), "layers": "none"})
    return [
        train(EXPERTS, Call("extend", {"base": base, "experts": list(FIRST)}), first),
        train(DENSE, control, first),
        train(GROWN, added, alone, EXPERTS),
        train(FURTHER, model_folder(folder, DENSE), later, DENSE),
    ]


def model_folder(folder: Path, name: str) -> Path:
    """Where a trained model stands."""
    return folder / "runs" / name / "model"


def nearest_texts(folder: Path, routes: Sequence[str]) -> list[Nearest]:
    """The nearest of `TEXTS` under each route, by experts and by the dense model."""
    from sentence_experts.models.loading import load

    models = {name: load(model_folder(folder, name)) for name in (EXPERTS, DENSE)}
    texts = list(TEXTS.values())
    found = []
    for route in routes:
        for name, model in models.items():
            vectors = model.encode([QUERY, *texts], prompt_name=route, normalize_embeddings=True)
            cosine, text = max(zip((vectors[1:] @ vectors[0]).tolist(), texts, strict=True))
            found.append(Nearest(route, name, text, cosine))
    return found


def figures(folder: Path) -> dict[str, dict[str, float | None]]:
    """The ROC-AUC of each model on the test pairs of each route, and their mean."""
    from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, PairEvaluation

    measured = {}
    for model in PairEvaluation.read(folder / "evaluation").models:
        views = {**model.domains, "mean": model.views[PAIR_WEIGHTED_MEAN]}
        measured[model.label] = {name: views[name].metrics["roc_auc"] for name in (*ROUTES, "mean")}
    return measured


def verdict(folder: Path) -> list[str]:
    """What the third route did to both models, in sentences."""
    from sentence_experts.evaluation.compare import compare
    from sentence_experts.report.verdict import SIMULATED

    measured = figures(folder)
    how = {
        EXPERTS: f"an expert was added for {ADDED} and trained alone, at three times the rate",
        DENSE: f"the one model was trained further on {ADDED}",
    }
    lines = [f"{SIMULATED}one training run of each model."]
    for before, after in ((EXPERTS, GROWN), (DENSE, FURTHER)):
        compared = compare(model_folder(folder, before), model_folder(folder, after))
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

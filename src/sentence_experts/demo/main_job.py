"""The main job from articles to search, on real articles or a simulated corpus."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

import sentence_experts as se
from sentence_experts.config import Config, Seed
from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.reproduce.material import Material, data_folder

if TYPE_CHECKING:
    from sentence_experts.evaluation.results import PairEvaluation
    from sentence_experts.retrieval.search import SearchResult

logger = logging.getLogger(__name__)

# Less than the small scale of the recipes, so that the demo takes minutes.
FEWER_PAIRS = {"max_validation_per_domain": 20, "max_eval_per_domain": 100}
BOOTSTRAP = 200


class DemoConfig(Config):
    """Settings of the demo."""

    simulated: bool = Field(False, description="Use the simulated corpus even if there are real articles")
    steps: int = Field(
        30, ge=1, description="Training steps of each model; a route that is added later gets half of them"
    )
    seed: Seed = 0


def choose_material(out: Path, config: DemoConfig) -> Material:
    """Return the articles of the demo, written to `out` if they are simulated.

    Raises:
        InputError: SENTENCE_EXPERTS_DATA is set, but the articles are not there.
    """
    material = Material.find(out / "simulated", None if config.simulated else data_folder())
    if material.simulated:
        simulate_corpus(material.sources[0], config.seed)
    return material


@contextmanager
def step(action: str) -> Iterator[None]:
    """Log what is done, and the seconds it took."""
    logger.info(action)
    began = time.monotonic()
    yield
    logger.info(f"{action}: took {time.monotonic() - began:.0f} s")


def run_main_job(material: Material, out: Path, config: DemoConfig, base: str = "minilm") -> PairEvaluation:
    """Import, pairs, a model with experts and a dense control trained alike, evaluation.

    Every call leaves a finished output as it is, so that an interrupted demo continues.
    """
    from sentence_experts.evaluation.results import PairEvaluation

    with step("import_corpus: articles become papers and citations"):
        corpus = se.import_corpus(material.sources, out / "corpus")
    with step("compile_pairs: papers that are cited together"):
        pairs = se.compile_pairs(
            corpus,
            out=out / "pairs",
            domains=material.rules,
            seed=config.seed,
            **{**material.pairs, **FEWER_PAIRS},
        )
    folders = {}
    # The control has the same domain tokens, data and steps, but one MLP for all domains.
    for name, layers in (("experts", "all"), ("dense", "none")):
        with step(f"extend and train: {name}"):
            model = se.extend(base, material.domains, layers=layers)
            se.train(
                model,
                pairs,
                out=out / "runs" / name,
                max_steps=config.steps,
                batch_size=16,
                batches="homogeneous",
                seed=config.seed,
                eval_steps=config.steps,
                keep="last",
            )
        folders[name] = out / "runs" / name / "model"
    with step("evaluate: ROC-AUC on linked and unlinked pairs of the test"):
        baseline = {"TF-IDF": "tfidf", "base": base}
        evaluation = se.evaluate(
            folders, pairs, out=out / "evaluation", baseline=baseline, bootstrap=BOOTSTRAP
        )
        se.write_report(evaluation, out / "evaluation")
    assert isinstance(evaluation, PairEvaluation)
    return evaluation


def searches(material: Material, out: Path) -> Iterator[tuple[str, SearchResult]]:
    """Yield each route of the material's queries, and the papers that its expert finds for the query."""
    model = se.load(out / "runs" / "experts" / "model")
    for route, query in material.queries.items():
        yield route, se.search(model, out / "corpus", query, route=route, unit="title", top_k=3)

"""The two parts of the demo as calls of public functions: articles to search, and routes from labels."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

import sentence_experts as se
from sentence_experts.config import Config, Seed
from sentence_experts.demo.package_lists import FACETS, read_labelled_programs
from sentence_experts.demo.simulated_texts import SIDES, simulated_texts
from sentence_experts.reproduce.material import Material

logger = logging.getLogger(__name__)

# Less than the small scale of the recipes, so that the demo takes minutes.
FEWER_PAIRS = {"max_validation_per_domain": 20, "max_eval_per_domain": 100}
BOOTSTRAP = 200
TWO, THREE = "two-routes", "three-routes"


class DemoConfig(Config):
    """Settings of the demo."""

    simulated: bool = Field(False, description="Use the simulated corpus even if there are real articles")
    steps: int = Field(30, ge=1, description="Training steps of each model of the main job")
    seed: Seed = 0


@contextmanager
def _step(action: str) -> Iterator[None]:
    """Log what is done, and the seconds it took."""
    logger.info(action)
    began = time.monotonic()
    yield
    logger.info(f"{action}: took {time.monotonic() - began:.0f} s")


def run_main_job(material: Material, out: Path, config: DemoConfig, base: str = "minilm") -> Any:
    """Import, pairs, a model with experts and a dense control trained alike; return their evaluation.

    Every call leaves a finished output as it is, so that an interrupted demo continues.
    """
    with _step("import_corpus: articles become papers and citations"):
        corpus = se.import_corpus(material.sources, out / "corpus")
    with _step("compile_pairs: papers that are cited together"):
        settings = {**material.pairs, **FEWER_PAIRS, "domains": material.rules, "seed": config.seed}
        pairs = se.compile_pairs(corpus, out=out / "pairs", **settings)
    # The control has the same domain tokens, data and steps, but one MLP for all domains.
    for name, layers in (("experts", "all"), ("dense", "none")):
        with _step(f"extend and train: {name}"):
            se.train(
                se.extend(base, material.domains, layers=layers), pairs, out=out / "runs" / name,
                max_steps=config.steps, batch_size=16, batches="homogeneous", seed=config.seed,
                eval_steps=config.steps, keep="last",
            )  # fmt: skip
    models = {name: out / "runs" / name / "model" for name in ("experts", "dense")}
    with _step("evaluate: ROC-AUC on linked and unlinked pairs of the test"):
        baseline = {"TF-IDF": "tfidf", "base": base}
        evaluation = se.evaluate(
            models, pairs, out=out / "evaluation", baseline=baseline, bootstrap=BOOTSTRAP
        )
        se.write_report(evaluation, out / "evaluation", keep=True)
    return evaluation


class LabelledRows(NamedTuple):
    """Texts with label columns.

    Attributes:
        name: a description of the texts.
        rows: with the columns `text` and one per route.
        routes: the label columns; the last one is added later.
        query: one of the texts.
    """

    name: str
    rows: Sequence[dict[str, Any]]
    routes: Sequence[str]
    query: str


def find_labelled_rows(seed: int = 0) -> LabelledRows:
    """Take the machine's package lists, or simulate texts."""
    programs = read_labelled_programs()
    if not programs:
        rows = simulated_texts(seed)
        return LabelledRows("SIMULATED texts", rows, tuple(SIDES), rows[0]["text"])
    rows = [{"text": row["summary"], **{name: row[name] for name in FACETS}} for row in programs]
    query = next((row["text"] for row in rows if "image viewer" in row["text"].lower()), rows[0]["text"])
    return LabelledRows(f"{len(rows):,} programs of this machine's package lists", rows, FACETS, query)


def run_route_job(
    texts: LabelledRows, folder: Path, config: DemoConfig, base: str = "minilm"
) -> tuple[se.FitResult, se.FitResult, str]:
    """Teach the base two routes, then that model a third one; and make a corpus of the texts.

    Returns:
        Both results, and a sentence on what the third route did to the first two.
    """
    *first, added = texts.routes
    papers = [{"id": f"text{number}", "title": row["text"]} for number, row in enumerate(texts.rows)]
    se.import_corpus(papers=papers, out=folder / "corpus")
    options: dict[str, Any] = {"text": ["text"], "seed": config.seed}
    with _step(f"fit: {' and '.join(first)}"):
        two = se.fit(base, list(texts.rows), by=first, out=folder / TWO, **options)
    with _step(f"fit: {added}, added to that model"):
        three = se.fit(folder / TWO, list(texts.rows), by=[added], out=folder / THREE, **options)

    def encode(model: se.ExpertEncoder, route: str) -> Any:
        return model.encode([texts.query], prompt_name=route)

    changed = [name for name in first if (encode(two.model, name) != encode(three.model, name)).any()]
    fate = "left {} the same to the bit" if not changed else "changed {}"
    return two, three, f"Adding {added} {fate.format(' and '.join(changed or first))}."

"""One evaluation, from names to files: `evaluation.json`, `scores.parquet`, `report.html`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.baselines import EncoderScorer, TfidfScorer
from sentence_experts.evaluation.evaluate import evaluate
from sentence_experts.evaluation.lineup import (
    Entry,
    RouteMap,
    check_names,
    line_up,
    option_of,
    runs_by_model,
)
from sentence_experts.evaluation.pairs import PairScorer, checked_table, domains_of, texts_by_domain
from sentence_experts.evaluation.results import Evaluation
from sentence_experts.evaluation.routing import RouterAccuracy, router_accuracy
from sentence_experts.models.loading import load
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.storage import write_json, write_parquet

logger = logging.getLogger(__name__)

TFIDF_FITS = ("train", "evaluated")
VERSIONS_OF = ("sentence-experts", "sentence-transformers", "transformers", "torch", "scikit-learn", "numpy")


@dataclass(frozen=True)
class EvaluationPlan:
    """What to evaluate, and how.

    Attributes:
        models, baselines: folders or hub ids; a baseline may be "tfidf".
        pairs: a folder written by `sentence-experts pairs`.
        out: where results go.
        cache: where vectors are kept, one file a model and route, to be used again by this and other
            evaluations; None is the folder `vectors` in `out`.
        split: train, validation or test.
        names: label -> one of the models or baselines.
        seeds: (label, folder or hub id) of each run of a model that was trained with several seeds.
        pooling: label, folder or hub id -> mean, last or cls.
        route_map: `DOMAIN` or `MODEL:DOMAIN` -> route, "*" for every domain; for models whose routes are not
            called like the domains.
        tfidf_fit: "train" (the domain's training texts) or "evaluated" (the evaluated texts themselves).
        replicates: of the bootstrap; 0 for no intervals.
        linked_only: leave the unlinked pairs out; the preprint's test set has none (3.1).
        threshold_min: lowest candidate threshold (the preprint's 0.5 for sets without negatives).
        max_length: cut texts to so many tokens, all models alike.
    """

    models: Sequence[str]
    pairs: Path
    out: Path
    baselines: Sequence[str] = ()
    cache: Path | None = None
    split: str = "test"
    names: Mapping[str, str] = field(default_factory=dict)
    seeds: Sequence[tuple[str, str]] = ()
    pooling: Mapping[str, str] = field(default_factory=dict)
    route_map: Mapping[str, str] = field(default_factory=dict)
    tfidf_fit: str = "train"
    replicates: int = 1000
    seed: int = 0
    linked_only: bool = False
    threshold_min: float | None = None
    device: str | None = None
    batch_size: int | None = None
    max_length: int | None = None


def run_evaluation(plan: EvaluationPlan) -> Evaluation:
    """Evaluate all models and baselines of the plan and write the results to `plan.out`.

    Raises:
        UsageError: an option does not make sense.
        InputError: the pairs or a model cannot be read.
        RouteError: a model lacks a route for a domain.
    """
    if plan.tfidf_fit not in TFIDF_FITS:
        raise UsageError(f"TF-IDF is fitted on {' or '.join(TFIDF_FITS)}, not {plan.tfidf_fit!r}")
    if plan.replicates < 0:
        raise UsageError(f"the number of bootstrap replicates cannot be {plan.replicates}")
    folder = PairsFolder.open(plan.pairs)
    table = checked_table(folder.split(plan.split), f"{plan.pairs}: split {plan.split}")
    if plan.linked_only:
        table = table.filter(pc.equal(table["label"], 1))
    settings = {
        "pairs": folder.name,
        "pairs_fingerprint": folder.fingerprint(),
        "pairs_settings": folder.manifest.get("settings", {}),
        "split": plan.split,
        "split_sha256": folder.split_hash(plan.split),
        "route_map": dict(plan.route_map),
        "linked_only": plan.linked_only,
        "versions": versions(),
    }
    entries = line_up(plan.models, plan.baselines, plan.names, plan.seeds)
    scorers = _scorers(plan, entries, table, folder)
    found = evaluate(
        scorers,
        table,
        plan.replicates,
        plan.seed,
        plan.threshold_min,
        settings,
        runs_by_model(entries),
        [entry.model for entry in entries if entry.is_baseline],
    )
    found = replace(found, routers=_routers(scorers, table))
    write_results(plan.out, found)
    return found


def write_results(out: Path, found: Evaluation) -> Path:
    """Write the three files; the path of the report is returned."""
    from sentence_experts.report.html import write_page
    from sentence_experts.report.page import evaluation_page

    write_json(out / "evaluation.json", found.to_json())
    write_parquet(out / "scores.parquet", found.scores)
    return write_page(out / "report.html", evaluation_page(found))


def versions() -> dict[str, str]:
    """The versions of the libraries that a figure can depend on."""
    known = {}
    for name in VERSIONS_OF:
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            known[name] = "not installed"
    return known


def _scorers(
    plan: EvaluationPlan, entries: Sequence[Entry], table: pa.Table, folder: PairsFolder
) -> list[PairScorer]:
    domains = domains_of(table)
    routes = RouteMap.read(plan.route_map, domains)
    check_names(entries, plan.pooling, "--pooling")
    check_names(entries, dict.fromkeys(routes.of_one, "..."), "--route-map")
    scorers: list[PairScorer] = []
    for entry in entries:
        if entry.is_tfidf:
            scorers.append(TfidfScorer(texts_by_domain(folder.split("train")), plan.tfidf_fit, entry.label))
            continue
        pooling = option_of(entry, plan.pooling)
        encoder = BatchEncoder(
            load(entry.source, device=plan.device, pooling=pooling, max_length=plan.max_length),
            plan.batch_size,
        )
        cache = plan.cache or plan.out / "vectors"
        scorer = EncoderScorer(encoder, domains, entry.label, routes.of(entry, encoder.routes), cache)
        _say_if_one_route_serves_all(scorer)
        scorers.append(scorer)
    _check_routes_of_all(routes, scorers)
    return scorers


def _routers(scorers: Sequence[PairScorer], table: pa.Table) -> dict[str, RouterAccuracy]:
    """Label -> how often its learned routers were right, for those that have any."""
    found = {
        scorer.label: router_accuracy(scorer.encoder, table, scorer.routes)
        for scorer in scorers
        if isinstance(scorer, EncoderScorer)
    }
    return {label: accuracy for label, accuracy in found.items() if accuracy is not None}


def _say_if_one_route_serves_all(scorer: EncoderScorer) -> None:
    taken = set(scorer.routes.values())
    if len(scorer.routes) > 1 and len(taken) == 1 and (route := taken.pop()) is not None:
        logger.info(f"{scorer.label}: route {route} for every domain")


def _check_routes_of_all(routes: RouteMap, scorers: Sequence[PairScorer]) -> None:
    known = {
        route for scorer in scorers if isinstance(scorer, EncoderScorer) for route in scorer.encoder.routes
    }
    for domain, route in routes.of_all.items():
        if route not in known:
            raise UsageError(
                f"--route-map {domain}={route}: no model has that route; "
                f"routes: {', '.join(sorted(known)) or 'none'}"
            )

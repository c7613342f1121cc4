"""One evaluation, from names to files: `evaluation.json`, `scores.parquet`, `report.html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.encoding.engine import Encoder
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.baselines import EncoderScorer, TfidfScorer
from sentence_experts.evaluation.pairs import PairScorer, checked_table, differences, domains_of, evaluate
from sentence_experts.evaluation.results import Evaluation
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.storage import sha256_file, write_json, write_parquet

TFIDF = "tfidf"
TFIDF_FITS = ("train", "evaluated")
VERSIONS_OF = ("sentence-experts", "sentence-transformers", "transformers", "torch", "scikit-learn", "numpy")


@dataclass(frozen=True)
class EvaluationPlan:
    """What to evaluate, and how.

    Attributes:
        models, baselines: folders or hub ids; a baseline may be "tfidf".
        pairs: a folder written by `sentence-experts pairs`.
        out: where results go; encoded vectors are kept in its folder `vectors` and used again.
        split: train, validation or test.
        names: label -> one of the models or baselines.
        route_map: domain -> route, for models whose routes are not called like the domains.
        tfidf_fit: "train" (the domain's training texts) or "evaluated" (the evaluated texts themselves).
        replicates: of the bootstrap; 0 for no intervals.
        threshold_min: lowest candidate threshold (the preprint's 0.5 for sets without negatives).
    """

    models: Sequence[str]
    pairs: Path
    out: Path
    baselines: Sequence[str] = ()
    split: str = "test"
    names: Mapping[str, str] = field(default_factory=dict)
    route_map: Mapping[str, str] = field(default_factory=dict)
    tfidf_fit: str = "train"
    replicates: int = 1000
    seed: int = 0
    threshold_min: float | None = None
    device: str | None = None
    batch_size: int = 32


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
    settings = {
        "pairs": folder.path.resolve().name,
        "pairs_fingerprint": folder.fingerprint(),
        "pairs_settings": folder.manifest.get("settings", {}),
        "split": plan.split,
        "split_sha256": sha256_file(folder.path / f"{plan.split}.parquet"),
        "route_map": dict(plan.route_map),
        "versions": versions(),
    }
    scorers = _scorers(plan, table, folder)
    found = evaluate(scorers, table, plan.replicates, plan.seed, plan.threshold_min, settings)
    if plan.replicates:
        found = replace(found, differences=differences(found, plan.replicates, plan.seed))
    write_results(plan.out, found)
    return found


def write_results(out: Path, found: Evaluation) -> Path:
    """Write the three files; the path of the report is returned."""
    from sentence_experts.report.page import evaluation_page, write_page

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


def _scorers(plan: EvaluationPlan, table: pa.Table, folder: PairsFolder) -> list[PairScorer]:
    sources = [*plan.models, *plan.baselines]
    label_of = {source: label for label, source in plan.names.items()}
    unknown = sorted(label_of.keys() - set(sources))
    if unknown:
        raise UsageError(
            f"--name {label_of[unknown[0]]}={unknown[0]}: no such model or baseline on this command"
        )
    domains = domains_of(table)
    scorers: list[PairScorer] = []
    for source in sources:
        label = label_of.get(source)
        if source == TFIDF and source in plan.baselines:
            scorers.append(TfidfScorer(_texts_by_domain(folder), plan.tfidf_fit, label or "TF-IDF"))
            continue
        encoder = Encoder.open(source, plan.device, plan.batch_size)
        routes = {domain: route for domain, route in plan.route_map.items() if route in encoder.routes}
        scorers.append(EncoderScorer(encoder, domains, label, routes, plan.out / "vectors"))
    _check_route_map(plan, scorers, domains)
    return scorers


def _check_route_map(plan: EvaluationPlan, scorers: Sequence[PairScorer], domains: Sequence[str]) -> None:
    known = {
        route for scorer in scorers if isinstance(scorer, EncoderScorer) for route in scorer.encoder.routes
    }
    for domain, route in plan.route_map.items():
        if domain not in domains:
            raise UsageError(f"--route-map {domain}={route}: the domains are {', '.join(domains)}")
        if route not in known:
            raise UsageError(
                f"--route-map {domain}={route}: no model has that route; "
                f"routes: {', '.join(sorted(known)) or 'none'}"
            )


def _texts_by_domain(folder: PairsFolder) -> dict[str, list[str]]:
    train = folder.split("train")
    texts: dict[str, list[str]] = {}
    for domain in train["domain"].unique().to_pylist():
        rows = train.filter(pc.equal(train["domain"], domain))
        texts[domain] = sorted({*rows["anchor"].to_pylist(), *rows["positive"].to_pylist()})
    return texts

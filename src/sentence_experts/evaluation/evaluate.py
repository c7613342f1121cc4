"""Measure models on labelled pairs, on the tasks of a folder, or on tasks of mteb."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from sentence_experts.config import with_settings
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.evaluation.config import EvaluateConfig
from sentence_experts.evaluation.models import (
    ModelRun,
    Models,
    RouteMap,
    check_names,
    identity_of,
    model_runs,
    setting_of,
    states_of_files,
    warn_of_models,
)
from sentence_experts.evaluation.pair_evaluation import evaluate_scorers, measure_text_free
from sentence_experts.evaluation.results import Evaluation, PairEvaluation, library_versions, measure_once
from sentence_experts.evaluation.router_accuracy import router_accuracy
from sentence_experts.evaluation.scorers import (
    Scorer,
    check_table,
    domains_of,
    encoder_score,
    routes_by_domain,
    texts_by_domain,
    tfidf_scorer,
    warn_of_no_prompt,
)
from sentence_experts.evaluation.text_free import describe_suspicion
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.models.sources import check_source
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.storage import check_apart
from sentence_experts.tasks.dataset import Tasks, open_dataset

logger = logging.getLogger(__name__)

CACHES = ("vectors", "mteb", "states")  # names in the folder of the results

# Settings that only pairs, or only tasks, have.
PAIR_SETTINGS = ("split", "bootstrap", "seed", "linked_only", "threshold_min", "cluster")
TASK_SETTINGS = ("only",)


@with_settings(EvaluateConfig)
def evaluate(
    models: Models,
    data: Any,
    config: EvaluateConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    *,
    baseline: Models = (),
    **settings: Any,
) -> Evaluation:
    """Measure models on labelled pairs, on the tasks of a folder, or on tasks of mteb.

    Each text is encoded with the route of its domain (pairs) or of its task's type, if the model has routes.
    Vectors and mteb's results are cached, so an interrupted evaluation continues where it stopped; a finished
    one in `out` is read back.

    Args:
        models: one model or several: folders, hub ids, "minilm", "tfidf" (pairs only), loaded
            `SentenceTransformer`s; or a mapping from label to a model or to a list of its runs, one per
            training seed, whose mean is then reported with its spread.
        data: labelled pairs of any form (`Pairs.of`); tasks or their folder; or names of mteb's tasks,
            benchmarks or groups.
        out: folder for the results: evaluation.json and scores.parquet (pairs) or tasks.json (tasks).
        overwrite: start over, replacing another evaluation in `out`.
        baseline: models that were not trained here, as `models`.
        config, settings: an `EvaluateConfig`, or single fields of it.

    Returns:
        A `PairEvaluation`, or a `TaskEvaluation`.

    Raises:
        UsageError: a setting is wrong, or does not apply to this data, or `out` holds something else.
        InputError: the data or a model cannot be read.
        RouteError: a model has no route for a domain or a type of task.

    Example:
        >>> evaluation = evaluate({"experts": "model"}, "pairs", baseline="tfidf", bootstrap=0)
        >>> sorted(set(evaluation.to_pandas()["model"]))
        ['TF-IDF', 'experts']
    """
    chosen = EvaluateConfig.of(config, **settings)
    runs = model_runs(models, baseline)
    check_apart(out, overwrite, models, baseline, data)
    source = _open_data(data, chosen.split)
    unit = source.settings.get("unit") if isinstance(source, Pairs) else None
    warn_of_models(runs, unit)
    kind: type[Evaluation]
    measure: Callable[[Path | None], Evaluation]
    if isinstance(source, Pairs):
        _check_settings(chosen, TASK_SETTINGS, "tasks, not for pairs")
        kind, measure = PairEvaluation, partial(_evaluate_pairs, runs, source, chosen)
    else:
        _check_settings(chosen, PAIR_SETTINGS, "pairs, not for tasks")
        require("mteb", "mteb")
        from sentence_experts.evaluation.mteb.results import TaskEvaluation
        from sentence_experts.evaluation.mteb.run import evaluate_tasks

        kind, measure = TaskEvaluation, partial(evaluate_tasks, runs, source, chosen)
    hash_data = source.fingerprint if isinstance(source, Pairs | Tasks) else lambda: source
    # Pairs are always compared by cosine.
    compared = {} if isinstance(source, Pairs) else _list_similarities(runs)
    made_from = lambda: {"data": hash_data(), **identity_of(runs, chosen), **compared}  # noqa: E731
    state = partial(states_of_files, runs)
    evaluation = measure_once(
        kind, "evaluation", out, overwrite, made_from, measure, caches=CACHES, state=state
    )
    if isinstance(evaluation, PairEvaluation) and (warning := describe_suspicion(evaluation.text_free)):
        logger.warning(warning)
    return evaluation


def _open_data(data: Any, split: str) -> Pairs | Tasks | list[str]:
    """Return pairs, tasks, or names of mteb."""
    if isinstance(data, list | tuple) and data and all(isinstance(name, str) for name in data):
        return list(data)
    if isinstance(data, str) and not Path(data).exists():
        return [data]
    return open_dataset(data, split, labelled=True)


def _list_similarities(runs: Sequence[ModelRun]) -> dict[str, Any]:
    """Return the similarities of models in memory that are not compared by cosine."""
    names = {run.label: getattr(run.source, "similarity_fn_name", None) for run in runs}
    others = {label: str(name) for label, name in names.items() if name not in (None, "cosine")}
    return {"similarities": others} if others else {}


def _check_settings(config: EvaluateConfig, inapplicable: Sequence[str], meant_for: str) -> None:
    for name in inapplicable:
        if getattr(config, name) != type(config).model_fields[name].default:
            raise UsageError(f"`{name}` is for {meant_for}")


def _evaluate_pairs(
    runs: Sequence[ModelRun], pairs: Pairs, config: EvaluateConfig, out: Path | None
) -> PairEvaluation:
    table = check_table(pairs.split(config.split), f"{pairs.name}: split {config.split}")
    if config.linked_only:
        table = table.filter(pc.equal(table["label"], 1))
        if not table.num_rows:
            raise InputError(f"{pairs.name}: no linked pairs in the {config.split} split")
    cache = config.cache or (None if out is None else out / "vectors")
    encoders = _open_encoders(runs, domains_of(table), config)
    training_texts = texts_by_domain(pairs.split("train")) if len(encoders) < len(runs) else {}
    models: dict[str, list[Scorer]] = {}
    for run in runs:
        if run.is_tfidf:
            scorer = tfidf_scorer(training_texts, run.label)
        else:
            encoder, routes = encoders[run.label]
            noted = partial(_describe_settings, encoder, routes)
            scorer = Scorer(run.label, encoder_score(encoder, routes, run.label, cache), noted)
        models.setdefault(run.model, []).append(scorer)
    evaluation = evaluate_scorers(
        models,
        table,
        **config.model_dump(include={"bootstrap", "seed", "threshold_min", "margin", "cluster"}),
        settings={
            "pairs": pairs.name,
            "pairs_fingerprint": pairs.fingerprint(),
            "pairs_settings": pairs.settings,
            "simulated": pairs.are_simulated,
            "split": config.split,
            "split_sha256": pairs.hashes().get(f"{config.split}.parquet"),
            "route_map": config.route_map,
            "linked_only": config.linked_only,
            "versions": library_versions(),
        },
        baseline=[run.model for run in runs if run.is_baseline],
    )
    routers = {
        label: router_accuracy(encoder, table, routes) for label, (encoder, routes) in encoders.items()
    }
    by_article = config.cluster == "article"
    return replace(
        evaluation,
        routers={label: accuracy for label, accuracy in routers.items() if accuracy is not None},
        text_free=measure_text_free(table, pairs.works(), config.bootstrap, config.seed, by_article),
    )


def _describe_settings(encoder: BatchEncoder, routes: Mapping[str, str | None]) -> dict[str, Any]:
    return encoder.settings() | {"route_of_domain": dict(routes)}


def _open_encoders(
    runs: Sequence[ModelRun], domains: Sequence[str], config: EvaluateConfig
) -> dict[str, tuple[BatchEncoder, dict[str, str | None]]]:
    """Open the models; return label of the run -> its encoder, and the route of each domain."""
    route_map = RouteMap.read(config.route_map, domains, f"the domains are {', '.join(domains)}")
    check_names(runs, config.pooling, "pooling")
    check_names(runs, dict.fromkeys(route_map.for_one_model, "..."), "route_map")
    models = [run for run in runs if not run.is_tfidf]
    check_source(*(run.source for run in models))

    def choose_routes(known: Sequence[KnownRoutes | None]) -> list[dict[str, str | None]]:
        """Choose the routes of all models; None stands for one that has to be loaded first."""
        names = {name for each in known if each is not None for name in each.prompts}
        for domain, route in route_map.for_all_models.items():
            if route not in names and None not in known:
                listed = ", ".join(sorted(names)) or "none"
                raise UsageError(f"`route_map` {domain}={route}: no model has that route; routes: {listed}")
        return [
            routes_by_domain(each, domains, route_map.of(run, each.prompts))
            for run, each in zip(models, known, strict=True)
            if each is not None
        ]

    choose_routes([KnownRoutes.read(run.source) for run in models])  # before anything is loaded
    encoders = [run.open(config, setting_of(run, config.pooling), config.max_length) for run in models]
    found = choose_routes([encoder.known_routes for encoder in encoders])
    for run, encoder, routes in zip(models, encoders, found, strict=True):
        if len(routes) > 1 and len(taken := set(routes.values())) == 1 and (route := taken.pop()) is not None:
            logger.info(f"{run.label}: route {route} for every domain")
        warn_of_no_prompt(run.label, encoder, routes, "`route_map` names one of")
    return {
        run.label: (encoder, routes) for run, encoder, routes in zip(models, encoders, found, strict=True)
    }

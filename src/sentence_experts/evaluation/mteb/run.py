"""Models on tasks: mteb measures, and its results are cached.

mteb's `ResultCache` holds one file per model, revision and task. A task whose results are there is not
measured again, so an interrupted evaluation continues, and one more task costs only that task.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import mteb
from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from sentence_experts.errors import SentenceExpertsError, UsageError, brief
from sentence_experts.evaluation.config import EvaluateConfig
from sentence_experts.evaluation.models import ModelRun, check_names, setting_of
from sentence_experts.evaluation.mteb.adapter import TaskEncoder
from sentence_experts.evaluation.mteb.groups import HubTask, hub_tasks
from sentence_experts.evaluation.mteb.local import LocalTask, local_tasks
from sentence_experts.evaluation.mteb.results import MeasuredTask, Run, TaskEvaluation, join_runs
from sentence_experts.evaluation.mteb.routes import NO_ROUTE, TaskRoutes, read_route_map
from sentence_experts.evaluation.results import library_versions
from sentence_experts.models.routes.known_routes import KnownRoutes
from sentence_experts.storage import sha256_file, sha256_text, temporary_folder, write_text
from sentence_experts.tasks.dataset import Tasks

if TYPE_CHECKING:
    from mteb.models import ModelMeta

logger = logging.getLogger(__name__)


def evaluate_tasks(
    runs: Sequence[ModelRun],
    data: Tasks | Sequence[str],
    config: EvaluateConfig,
    out: Path | None = None,
) -> TaskEvaluation:
    """Measure models on the test sets of a tasks folder, or on tasks of mteb.

    A task whose data cannot be loaded is left out, logged, and recorded in `missing`.

    Args:
        runs: the models.
        data: a tasks folder, or names of mteb's tasks, benchmarks or groups.
        config: the settings.
        out: folder for `mteb`, the cached results, if the settings name no other; None for a
            temporary one.

    Raises:
        UsageError: a setting is wrong.
        InputError: the tasks or a model cannot be read.
        RouteError: a model has no route for a type of task.
    """
    if any(run.is_tfidf for run in runs):
        raise UsageError(
            "`baseline`: TF-IDF is for pairs, since it is fitted on training texts of each domain; for tasks "
            "give an encoder, such as minilm"
        )
    sources: Sequence[LocalTask | HubTask]
    if isinstance(data, Tasks):
        sources = local_tasks(data, config.only)
        noted: dict[str, Any] = {"tasks": data.name, "tasks_fingerprint": data.fingerprint()}
    else:
        sources, noted = hub_tasks(data, config.only), {"mteb": list(data)}
    maps = read_route_map(config.route_map, [(source.name, source.kind) for source in sources])
    check_names(runs, dict.fromkeys(maps.for_one_model, "..."), "route_map")
    check_names(runs, config.pooling, "pooling")
    known = [KnownRoutes.read(run.source) for run in runs]
    names = {name for each in known if each is not None for name in each.prompts}
    for key, route in maps.for_all_models.items():
        if None not in known and not names and route != NO_ROUTE:
            raise UsageError(f"`route_map` {key}={route}: no model has routes")
    own = {key: route for source in sources for key, route in getattr(source, "routes", {}).items()}
    scores: list[Run] = []
    missing: dict[str, str] = {}
    with temporary_folder() as temporary, _hide_output():
        cache = mteb.ResultCache(config.cache or (Path(temporary) if out is None else out / "mteb"))
        for run in runs:
            encoder = run.open(config, setting_of(run, config.pooling), config.max_length)
            routes = TaskRoutes.of(encoder, maps.of(run, None if encoder.routes else ()), own)
            scores.append(_measure_run(run, TaskEncoder(encoder, routes), sources, cache, missing))
    more = {"only": config.only, "route_map": config.route_map, "versions": library_versions("mteb")}
    tasks = []
    for source in sources:
        metadata = source.make().metadata
        tasks.append(MeasuredTask(source.name, source.kind, str(metadata.main_score), str(metadata.revision)))
    baseline = [run.model for run in runs if run.is_baseline]
    return join_runs(tasks, scores, noted | more, missing, config.margin, baseline)


def _measure_run(
    run: ModelRun,
    model: TaskEncoder,
    sources: Sequence[LocalTask | HubTask],
    cache: mteb.ResultCache,
    missing: dict[str, str],
) -> Run:
    """Measure a run on all tasks whose data can be loaded; the others are added to `missing`."""
    routes = {source.name: model.routes.check(source.name, source.kind) for source in sources}
    scores, cached = {}, 0
    for place, source in enumerate(sources, start=1):
        if source.name in missing:
            continue
        task = source.make()
        result = _read_cached(task, model.mteb_model_meta, cache)
        cached += result is not None
        if result is None:
            logger.info(f"{run.label}: task {place} of {len(sources)}, {source.name}")
            result = _measure_task(task, model, cache, missing)
        if result is not None:
            # mteb's main score: the mean over the splits and subsets of the task.
            scores[source.name] = float(result.validate_and_filter_scores(task).get_score())
    if cached:
        logger.info(f"{run.label}: {cached} of {len(sources)} tasks were already measured")
    identity = {"revision": model.mteb_model_meta.revision, "route_of_task": routes}
    return Run(run.label, run.model, model.encoder.settings() | identity, scores)


def _read_cached(
    task: AbsTask, meta: ModelMeta, cache: mteb.ResultCache, is_new: bool = False
) -> TaskResult | None:
    """Return the result of an earlier evaluation, if it is complete and of the same data.

    One that is new is not compared with its record: another evaluation may have written both meanwhile.
    """
    path = cache.get_task_result_path(task.metadata.name, meta)
    record = path.with_name(f"{path.name}.sha256")  # results that mteb itself wrote have none
    if not path.exists():
        return None
    if is_new:
        write_text(record, _hash_result(path, meta))
    try:
        hashes = (_hash_result(path, meta), sha256_file(path))  # the latter is of earlier versions
        if not is_new and record.exists() and record.read_text(encoding="utf-8") not in hashes:
            raise ValueError("changed since it was written")
        result = TaskResult.from_disk(path)
    except (ValueError, KeyError, OSError):
        logger.info(f"{path.name}: the cached result is not readable, {task.metadata.name} is measured again")
        path.unlink()
        record.unlink(missing_ok=True)
        return None
    if result.dataset_revision != task.metadata.revision:
        path.unlink()
        record.unlink(missing_ok=True)
        return None
    return None if result.get_missing_evaluations(task) else result


def _hash_result(path: Path, meta: ModelMeta) -> str:
    return sha256_text(meta.name or "", meta.revision or "", sha256_file(path))


def _measure_task(
    task: AbsTask, model: TaskEncoder, cache: mteb.ResultCache, missing: dict[str, str]
) -> TaskResult | None:
    """Measure a task; None, and an entry in `missing`, if its data cannot be loaded."""
    started, name = time.monotonic(), task.metadata.name
    # An aggregate has no data; the tasks that it consists of have.
    parts = list(task.metadata.tasks) if task.is_aggregate else [task]  # type: ignore[attr-defined]
    try:
        for part in parts:
            part.load_data()
    except SentenceExpertsError:
        raise
    except Exception as error:  # errors of the hub, the network, or the code of a dataset
        missing[name] = type(error).__name__
        logger.info(f"{name}: left out, its data cannot be loaded: {missing[name]}: {brief(error)[:200]}")
        return None
    mteb.evaluate(
        model,  # type: ignore[arg-type]
        task,
        cache=cache,
        overwrite_strategy="only-missing",
        encode_kwargs={"batch_size": model.encoder.texts_at_once, "show_progress_bar": False},
        co2_tracker=False,
        show_progress_bar=False,
    )
    for part in parts:
        part.unload_data()
    logger.info(f"  {name}: {time.monotonic() - started:.0f} s")
    # Read back: the file has fewer digits, and the next evaluation must give the same scores.
    return _read_cached(task, model.mteb_model_meta, cache, is_new=True)


@contextmanager
def _hide_output() -> Iterator[None]:
    """Hide the progress bars and log messages of mteb and datasets, which `progress` replaces."""
    bars, log = datasets.is_progress_bar_enabled(), logging.getLogger("mteb")
    level = log.level
    datasets.disable_progress_bars()
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
        if bars:
            datasets.enable_progress_bars()

"""Several models on several tasks, from names to files: `tasks.json`, `tasks.md`, mteb's own results.

mteb's results are kept in its `ResultCache` folder, a file a model, revision and task, and what is there is
not measured again: an interrupted evaluation goes on, another one with one task more measures that task.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import mteb
from mteb.abstasks import AbsTask
from mteb.results import TaskResult

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import SentenceExpertsError, UsageError
from sentence_experts.evaluation.lineup import Entry, check_names, line_up, option_of
from sentence_experts.evaluation.mteb.adapter import TaskEncoder
from sentence_experts.evaluation.mteb.groups import TaskSource, hub_tasks
from sentence_experts.evaluation.mteb.local import LocalTask, local_tasks
from sentence_experts.evaluation.mteb.results import Run, Task, TaskEvaluation, joined
from sentence_experts.evaluation.mteb.routes import TaskRoutes, read_route_map
from sentence_experts.evaluation.run import versions
from sentence_experts.models.loading import load
from sentence_experts.storage import write_json, write_text
from sentence_experts.tasks.dataset import TasksFolder

if TYPE_CHECKING:
    from mteb.models import ModelMeta

logger = logging.getLogger(__name__)

RESULTS, REPORT, CACHE = "tasks.json", "tasks.md", "mteb"


@dataclass(frozen=True)
class TaskPlan:
    """What to measure, and how.

    Attributes:
        models: folders or hub ids.
        out: where `tasks.json` and `tasks.md` go.
        names: groups, benchmarks or tasks of mteb; or else
        folder: a folder written by `sentence-experts tasks`.
        only: names or types of the tasks to keep; empty keeps all.
        cache: mteb's result cache; None is the folder `mteb` in `out`.
        labels: label -> one of the models.
        seeds: (label, folder or hub id) of each run of a model that was trained with several seeds.
        pooling: label, folder or hub id -> mean, last or cls.
        route_map: `KEY` or `MODEL:KEY` -> route (`routes`).
        replicates: of the bootstrap over datasets; 0 for no intervals.
        max_length: cut texts to so many tokens, all models alike.
    """

    models: Sequence[str]
    out: Path
    names: Sequence[str] = ()
    folder: Path | None = None
    only: Sequence[str] = ()
    cache: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    seeds: Sequence[tuple[str, str]] = ()
    pooling: Mapping[str, str] = field(default_factory=dict)
    route_map: Mapping[str, str] = field(default_factory=dict)
    replicates: int = 1000
    seed: int = 0
    device: str | None = None
    batch_size: int | None = None
    max_length: int | None = None


def run_tasks(plan: TaskPlan, opened: Callable[[Entry], BatchEncoder] | None = None) -> TaskEvaluation:
    """Measure all models of the plan on all its tasks and write the results to `plan.out`.

    `opened` gives an entry's encoder where it is no folder or hub id. A task whose data cannot be had is
    said, left out, and noted in `missing`; the others go on.

    Raises:
        UsageError: an option does not make sense.
        InputError: the tasks or a model cannot be read.
        RouteError: a model has no route for a type of task.
    """
    sources, noted = _sources(plan)
    entries = line_up(plan.models, (), plan.labels, plan.seeds)
    _check(plan, entries)
    maps = read_route_map(plan.route_map, [(source.name, source.kind) for source in sources])
    check_names(entries, dict.fromkeys((name for name in maps if name), "..."), "--route-map")
    check_names(entries, plan.pooling, "--pooling")
    own: dict[str, str] = {}
    for source in sources:
        own |= source.routes if isinstance(source, LocalTask) else {}
    measure = _Measure(mteb.ResultCache(plan.cache or plan.out / CACHE), sources)
    runs = []
    with _quiet():
        for entry in entries:
            encoder = opened(entry) if opened else _opened(entry, plan)
            routes = TaskRoutes.of(encoder, _given(entry, maps, encoder), own)
            runs.append(measure.run(entry, TaskEncoder(encoder, routes)))
    tasks = [_task(source) for source in sources]
    settings = noted | {"only": list(plan.only), "route_map": dict(plan.route_map), "versions": _versions()}
    settings |= {"replicates": plan.replicates, "seed": plan.seed}
    found = joined(tasks, runs, settings, measure.missing, plan.replicates, plan.seed)
    _write(plan.out, found)
    return found


def _opened(entry: Entry, plan: TaskPlan) -> BatchEncoder:
    pooling = option_of(entry, plan.pooling)
    return BatchEncoder(
        load(entry.source, device=plan.device, pooling=pooling, max_length=plan.max_length), plan.batch_size
    )


class _Measure:
    """Measures run after run on the same tasks, and remembers which tasks could not be had."""

    def __init__(self, cache: mteb.ResultCache, sources: Sequence[TaskSource]) -> None:
        self.cache = cache
        self.sources = sources
        self.missing: dict[str, str] = {}

    def run(self, entry: Entry, model: TaskEncoder) -> Run:
        """The run's scores on all tasks whose data can be had."""
        for source in self.sources:
            model.routes.check(source.name, source.kind)
        scores, kept = {}, 0
        for place, source in enumerate(self.sources, start=1):
            if source.name in self.missing:
                continue
            task = source.make()
            found = self._kept(task, model.mteb_model_meta)
            kept += found is not None
            if found is None:
                logger.info(f"{entry.label}: task {place} of {len(self.sources)}, {source.name}")
                found = self._measured(task, model)
            if found is not None:
                scores[source.name] = _main_score(task, found)
        if kept:
            logger.info(f"{entry.label}: {kept} of {len(self.sources)} tasks were measured before")
        return Run(entry.label, entry.model, _settings(model, self.sources), scores)

    def _kept(self, task: AbsTask, meta: ModelMeta) -> TaskResult | None:
        """The figures of an earlier evaluation, if they are whole and of the same data."""
        path = self.cache.get_task_result_path(task.metadata.name, meta)
        if not path.exists():
            return None
        try:
            found = TaskResult.from_disk(path)
        except (ValueError, KeyError, OSError):
            logger.info(
                f"{path.name}: the kept result is not readable, {task.metadata.name} is measured again"
            )
            path.unlink()
            return None
        if found.dataset_revision != task.metadata.revision:
            path.unlink()
            return None
        return None if found.get_missing_evaluations(task) else found

    def _measured(self, task: AbsTask, model: TaskEncoder) -> TaskResult | None:
        started = time.monotonic()
        if not self._loaded(task):
            return None
        mteb.evaluate(
            model,  # type: ignore[arg-type]
            task,
            cache=self.cache,
            overwrite_strategy="only-missing",
            encode_kwargs={"batch_size": model.encoder.texts_at_once, "show_progress_bar": False},
            co2_tracker=False,
            show_progress_bar=False,
        )
        # Read again: the file has fewer digits, and the next evaluation must find the same figures.
        found = self._kept(task, model.mteb_model_meta)
        for part in _parts(task):
            part.unload_data()
        if found is not None:
            seconds = time.monotonic() - started
            logger.info(f"  {task.metadata.main_score} {_main_score(task, found):.4f} ({seconds:.0f} s)")
        return found

    def _loaded(self, task: AbsTask) -> bool:
        """Load the task's data; False where they cannot be had."""
        try:
            for part in _parts(task):
                part.load_data()
        except SentenceExpertsError:
            raise
        except Exception as error:  # the hub's, the network's, a data set's own code
            why = " ".join(str(error).split())[:200]
            logger.info(
                f"{task.metadata.name}: left out, its data cannot be loaded: {type(error).__name__}: {why}"
            )
            self.missing[task.metadata.name] = type(error).__name__
            return False
        return True


def _sources(plan: TaskPlan) -> tuple[Sequence[TaskSource], dict[str, Any]]:
    """The tasks, and what the results note of where they come from."""
    if plan.folder is None:
        return hub_tasks(plan.names, plan.only), {"mteb": list(plan.names)}
    folder = TasksFolder.open(plan.folder)
    noted = {"tasks": folder.name, "tasks_fingerprint": folder.fingerprint()}
    return local_tasks(folder, plan.only), noted


def _check(plan: TaskPlan, entries: Sequence[Entry]) -> None:
    if not entries:
        raise UsageError("nothing to evaluate: name at least one model")
    labels = [entry.label for entry in entries]
    for label in {*labels, *(entry.model for entry in entries)}:
        if labels.count(label) > 1 or (label in labels and any(e.model == label != e.label for e in entries)):
            raise UsageError(f"two models are called {label!r}: name one with --name LABEL=PATH")
    if plan.replicates < 0:
        raise UsageError(f"the number of bootstrap replicates cannot be {plan.replicates}")


def _given(
    entry: Entry, maps: Mapping[str | None, Mapping[str, str]], encoder: BatchEncoder
) -> dict[str, str]:
    """Key -> route for this model: what is for all models that have routes, then what names this one."""
    found = dict(maps.get(None, {})) if encoder.routes else {}
    for name, some in maps.items():
        if name is not None and entry.is_called(name):
            found |= some
    return found


def _parts(task: AbsTask) -> list[AbsTask]:
    """The tasks with data of their own: those of an aggregate, or the task itself."""
    return list(task.metadata.tasks) if task.is_aggregate else [task]  # type: ignore[attr-defined]


def _main_score(task: AbsTask, found: TaskResult) -> float:
    """mteb's main figure: the mean over the task's splits and subsets."""
    return float(found.validate_and_filter_scores(task).get_score())


def _task(source: TaskSource) -> Task:
    metadata = source.make().metadata
    return Task(source.name, source.kind, str(metadata.main_score), str(metadata.revision))


def _settings(model: TaskEncoder, sources: Sequence[TaskSource]) -> dict[str, Any]:
    routes = {source.name: model.routes.check(source.name, source.kind) for source in sources}
    return model.encoder.settings() | {
        "revision": model.mteb_model_meta.revision,
        "route_of_task": routes,
    }


def _versions() -> dict[str, str]:
    return versions() | {"mteb": mteb.__version__}


def _write(out: Path, found: TaskEvaluation) -> None:
    from sentence_experts.report.task_tables import markdown

    write_json(out / RESULTS, found.to_json())
    write_text(out / REPORT, markdown(found))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep mteb's and datasets' own bars and notes off the terminal: the program says how far it is."""
    bars = datasets.is_progress_bar_enabled()
    log = logging.getLogger("mteb")
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

"""The models that are measured: their labels, pooling and routes, and which are runs of one model.

Settings that concern one model name it by its label, its run's label, or the folder or hub id it comes from.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.config import EncodingOptions
from sentence_experts.models.files.fingerprint import fingerprint_with_settings, source_fingerprint
from sentence_experts.models.loading import load
from sentence_experts.models.sources import (
    NAME,
    file_states,
    hub_commit,
    model_folder,
    name_of,
    notes_of,
    source_name,
    warn_of_notes,
)
from sentence_experts.names import LABEL

logger = logging.getLogger(__name__)

TFIDF = "tfidf"
ANY_KEY = "*"
# A folder, a hub id, "minilm", "tfidf", or a loaded SentenceTransformer.
Model = Any
# One model, several, or label -> a model or a list of its runs.
Models = Model | Sequence[Model] | Mapping[str, Model | Sequence[Model]]


@dataclass(frozen=True)
class ModelRun:
    """One run of one model.

    Attributes:
        label, model: labels of the run and of its model; the same if the model has a single run.
        source: a folder, a hub id, "tfidf", or the loaded model.
        is_baseline: whether the model is taken as it is, so that its training seeds do not matter.
    """

    label: str
    model: str
    source: Model
    is_baseline: bool = False

    @property
    def is_tfidf(self) -> bool:
        """Whether this is the TF-IDF baseline."""
        return isinstance(self.source, str) and self.source == TFIDF

    def is_called(self, name: str) -> bool:
        """Return whether a setting that names `name` means this run."""
        places = (str(self.source),) if isinstance(self.source, str | Path) else ()
        return name in (self.label, self.model, *places)

    def fingerprint(self) -> str:
        """Return the hash of the model, without loading it if it is a folder."""
        if not isinstance(self.source, str | Path):
            return fingerprint_with_settings(self.source)
        place = model_folder(str(self.source))
        return source_fingerprint(place, hub_commit(place))

    def open(
        self, options: EncodingOptions, pooling: str | None = None, max_length: int | None = None
    ) -> BatchEncoder:
        """Load the model; one in memory stays as it is."""
        given: dict[str, Any] = {"device": options.device, "pooling": pooling, "max_length": max_length}
        is_path = isinstance(self.source, str | Path)
        model = load(self.source, **{name: value for name, value in given.items() if value is not None})
        return BatchEncoder(model, options.batch_size, None if is_path else self.label)


def model_runs(models: Models, baseline: Models = (), allow_none: bool = False) -> list[ModelRun]:
    """Return the runs of all models, then the runs of the baselines.

    Without a label a model is called by its folder, its training run or its hub id. Baselines were not
    trained here; "tfidf" and "minilm" always are such.

    Raises:
        UsageError: no models, or two with the same label.
    """
    runs = []
    for given, is_baseline in ((models, False), (baseline, True)):
        if not isinstance(given, Mapping):
            several = isinstance(given, Sequence) and not isinstance(given, str)
            sources = list(given) if several else [given]
            _check_distinct(map(label_of, sources))
            given = {label_of(source): source for source in sources}
        for label, source in given.items():
            try:
                LABEL.check("model", label)
            except ValueError as error:
                raise UsageError(str(error)) from error
            if isinstance(source, list | tuple):
                numbered = enumerate(source, start=1)
                runs += [ModelRun(f"{label} #{number}", label, run, is_baseline) for number, run in numbered]
            else:
                is_named = isinstance(source, str) and source in (TFIDF, NAME)
                runs.append(ModelRun(label, label, source, is_baseline or is_named))
    if not runs and not allow_none:
        raise UsageError("nothing to evaluate: name at least one model or baseline")
    _check_distinct([*(run.label for run in runs), *{run.model for run in runs if run.model != run.label}])
    return runs


def _check_distinct(labels: Iterable[str]) -> None:
    if twice := next((label for label, count in Counter(labels).items() if count > 1), None):
        raise UsageError(f"two models are called {twice!r}: give one another name")


def named_models(
    models: Sequence[str],
    baseline: Sequence[str] = (),
    name: Mapping[str, str] | None = None,
    seeds: Mapping[str, Sequence[str]] | None = None,
) -> tuple[dict[str, Model], dict[str, Model]]:
    """Return models and baselines as `evaluate` takes them, from names that are given apart.

    `name` is label -> model or baseline, one with two labels being measured twice; `seeds` is label -> the
    runs of a model that was trained with several seeds.

    Raises:
        UsageError: a name for a model that is not there, or two models with the same label.
    """
    labels: dict[str, list[str]] = {}
    for label, source in (name or {}).items():
        if source not in (*models, *baseline):
            raise UsageError(f"`name` {label}={source}: no such model or baseline")
        labels.setdefault(source, []).append(label)
    runs = {label: list(sources) for label, sources in (seeds or {}).items()}
    named, named_baseline = (
        [(label, source) for source in sources for label in labels.get(source, [label_of(source)])]
        for sources in (models, baseline)
    )
    _check_distinct([*(label for label, _ in (*named, *named_baseline)), *runs])
    return {**dict(named), **runs}, dict(named_baseline)


def label_of(model: Model) -> str:
    """Return the name of a model without a label: folder or run, hub id, or the loaded model's own name."""
    if isinstance(model, str | Path):
        return "TF-IDF" if model == TFIDF else source_name(str(model))
    return name_of(model)


def setting_of(run: ModelRun, settings: Mapping[str, str]) -> str | None:
    """Return the value that `settings` (label or source -> value) has for this run."""
    return next((value for name, value in settings.items() if run.is_called(name)), None)


def warn_of_models(runs: Sequence[ModelRun], unit: str | None) -> None:
    """Warn of models that are untrained, or trained on another text than `unit`."""
    for run in runs:
        if not run.is_tfidf:
            warn_of_notes(run.label, notes_of(run.source), unit)


def check_names(runs: Sequence[ModelRun], named: Mapping[str, str], setting: str) -> None:
    """Check that every model that a setting names is there.

    Raises:
        UsageError: one is not, or is TF-IDF.
    """
    encoders = [run for run in runs if not run.is_tfidf]
    for name, value in named.items():
        if not any(run.is_called(name) for run in encoders):
            known = ", ".join(dict.fromkeys(run.model for run in encoders)) or "none"
            raise UsageError(f"`{setting}` {name}={value}: no such model; models: {known}")


@dataclass(frozen=True)
class RouteMap:
    """The setting `route_map`. A key is a domain, or a task or type of task; "*" is all of them.

    Attributes:
        for_all_models: key -> route, for all models.
        for_one_model: label or source of a model -> key -> route.
    """

    for_all_models: Mapping[str, str]
    for_one_model: Mapping[str, Mapping[str, str]]
    _told: set[str] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def read(cls, assignments: Mapping[str, str], keys: Collection[str], expected: str) -> RouteMap:
        """Read `KEY` or `MODEL:KEY` -> route; `expected` ends the message about a key not in `keys`.

        Raises:
            UsageError: an unknown key.
        """
        for_all_models: dict[str, str] = {}
        for_one_model: dict[str, dict[str, str]] = {}
        for written, route in assignments.items():
            # Models and domains may hold colons themselves, so the end is compared.
            matching = [key for key in (*keys, ANY_KEY) if f":{written}".endswith(f":{key}")]
            if not matching:
                raise UsageError(f"`route_map` {written}={route}: {expected}")
            key = max(matching, key=len)
            model = written.removesuffix(key).removesuffix(":")
            (for_one_model.setdefault(model, {}) if model else for_all_models)[key] = route
        return cls(for_all_models, for_one_model)

    def of(self, run: ModelRun, routes: Collection[str] | None = None) -> dict[str, str]:
        """Return key -> route for a run; of the routes for all models, only those in `routes`, if given."""
        shared = self.for_all_models.items()
        chosen = {key: route for key, route in shared if routes is None or route in routes}
        for model, named in self.for_one_model.items():
            if run.is_called(model):
                chosen |= named
        left = [f"{key}={route}" for key, route in shared if key not in chosen]
        # A model with one route takes it everywhere, and one without routes needs none.
        if left and len(routes or ()) > 1 and run.model not in self._told:
            self._told.add(run.model)
            logger.warning(f"{run.model}: `route_map` names routes that it does not have: {', '.join(left)}")
        return chosen


def states_of_files(runs: Sequence[ModelRun]) -> dict[str, tuple[int, ...]]:
    """Return the state of each file of the models that are folders."""
    folders = [str(run.source) for run in runs if isinstance(run.source, str | Path)]
    return {file: state for folder in folders for file, state in file_states(folder).items()}


def identity_of(runs: Sequence[ModelRun], config: EncodingOptions) -> dict[str, Any]:
    """Return the models and settings that decide the results, apart from the data."""
    models = {run.label: {"of": run.model, "fingerprint": run.fingerprint()} for run in runs}
    chosen = config.model_dump(mode="json", exclude={"cache", "batch_size", "device"})
    identity: dict[str, Any] = {"models": models, "config": chosen}
    baselines = [run.label for run in runs if run.is_baseline]
    if len(runs) > 1 or baselines:
        identity |= {"order": [run.label for run in runs], "baselines": baselines}
    return identity

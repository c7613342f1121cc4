"""Search for training settings: random by default, on a sample of the training pairs, with optuna.

Source: Hallee et al. 2024 (preprint), 3.3. Every trial is an ordinary training run in OUT/trials, and is
recorded in OUT/study.db once it is finished. What a trial draws follows from the search's seed, the trial's
number and, for samplers that learn, the trials before it: an interrupted search repeats none of them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer

from sentence_experts.config import with_settings
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError, require
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.loading import load
from sentence_experts.storage import (
    NoSpaceError,
    Output,
    check_apart,
    output,
    replacing,
    sha256_text,
    temporary_folder,
)
from sentence_experts.training import processes
from sentence_experts.training.batches import RouteBatches
from sentence_experts.training.config import TrainConfig, TuneConfig
from sentence_experts.training.data import TrainingSet, trained_routes
from sentence_experts.training.objectives import Objective
from sentence_experts.training.open_data import open_data
from sentence_experts.training.run import train
from sentence_experts.training.search_space import SearchSpace, read_space, without_fixed
from sentence_experts.training.trainable import check_settings, choose_trainable
from sentence_experts.training.trainer import BadNumbersError

if TYPE_CHECKING:
    import pandas as pd
    from optuna import Study

logger = logging.getLogger(__name__)

STUDY = "settings"
BEST, STUDY_FILE, TRIALS = "best.yaml", "study.db", "trials"
# Errors that sampled settings can cause: infinite numbers, too much memory, too few steps or pairs. Errors of
# every trial are found before the first one (`_Search._problem`); any other error stops the search.
FAILURES = (BadNumbersError, torch.OutOfMemoryError, UsageError, InputError)


@dataclass(frozen=True)
class Trial:
    """One finished trial, counted from 0.

    `best` is its best validation figure, None if it failed; `start` the one before training.
    """

    number: int
    settings: dict[str, Any]
    best: float | None
    steps: int | None
    failure: str | None
    start: float | None = None


@dataclass(frozen=True, repr=False)
class TuneResult:
    """A finished search.

    Attributes:
        trials: all of them.
        best: the one with the highest validation figure, the first of equals.
        config: its settings, for `train`.
        out: the folder; None if the result is in memory only.
    """

    trials: list[Trial]
    best: Trial
    config: TrainConfig
    out: Path | None = None

    def __repr__(self) -> str:
        sampled = ", ".join(f"{name}={short(value)}" for name, value in self.best.settings.items())
        return f"TuneResult({len(self.trials)} trials, best={self.best.best:.4f} with {sampled})"

    def to_pandas(self) -> pd.DataFrame:
        """One row per trial: number, a column per setting, steps, best, failure."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"trial": t.number, **t.settings, "steps": t.steps, "best": t.best, "failure": t.failure}
                for t in self.trials
            ]
        )


@with_settings(TuneConfig)
def tune(
    model: str | Path | SentenceTransformer,
    data: Any,
    config: TuneConfig | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    space: Mapping[str, Any] | Path | str | None = None,
    **settings: Any,
) -> TuneResult:
    """Try training settings on a sample of the training pairs; the best validation figure wins.

    Args:
        model: what every trial trains: a folder, a hub id or "minilm"; or a model in memory, of which every
            trial trains a copy.
        data: as of `train`.
        config: settings of the search and of all trials; `settings` replace single ones. Training settings
            that are given are not searched.
        out: folder for the search: trials/, study.db, best.yaml (the settings of the best trial).
        overwrite: start over, replacing another search in `out`. The same search continues, also with more
            `trials`.
        space: the settings to search, or a YAML file of them: {"warmup": {"type": "float", "low": 0, "high":
            0.5}}; types: "int" and "float" (with "log": true if wanted), "categorical" (with "choices"). By
            default those of the 2024 preprint: batch_size from 5 to 20, warmup and epochs.

    Raises:
        UsageError: `out` holds something else; or the shared settings do not suit the model or the data,
            in every trial.
        SentenceExpertsError: optuna is not installed, or no trial has finished.
        InputError: as `train`.

    Example:
        >>> result = tune("model", "pairs", trials=1, epochs=1, max_steps=2, eval_steps=2, warmup=0)
        >>> list(result.best.settings)
        ['batch_size']
    """
    require("optuna", "tune").logging.set_verbosity(require("optuna", "tune").logging.WARNING)
    chosen = TuneConfig.of(config, **settings)
    given = chosen.model_fields_set & TrainConfig.model_fields.keys()
    shared = {name: getattr(chosen, name) for name in {*given, "fraction"}}
    varied = without_fixed(read_space(space), chosen, given)
    check_apart(out, overwrite, model, data, space)
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(temporary_folder())) / "search"
        names = (BEST, STUDY_FILE, TRIALS)
        place = stack.enter_context(output(folder, "search", names=names, grows=True, overwrite=overwrite))
        search = _Search(model, open_data(data), place, chosen, shared, varied)
        trials = search.run()
        best = best_of(trials)
        if best.start is not None and best.best == best.start:
            logger.warning(f"no trial made the model better than it was before training ({best.start:.4f})")
        of_best_trial = search.trial_config(best.settings)
        best_config = TrainConfig.of(of_best_trial, fraction=1.0)
        best_config.write(place.path / BEST)
        place.finish(BEST)
    return TuneResult(trials, best, best_config, None if out is None else folder)


def best_of(trials: list[Trial]) -> Trial:
    """The trial with the highest validation figure, the first of equals.

    Raises:
        SentenceExpertsError: every trial failed.
    """
    finished = [trial for trial in trials if trial.best is not None]
    if not finished:
        raise SentenceExpertsError(
            f"all {len(trials)} trials failed, the last with: {trials[-1].failure}; give another `space`"
        )
    return max(finished, key=lambda trial: trial.best or 0.0)


@dataclass(frozen=True)
class _Search:
    """What is searched, on what: `shared` are the training settings of all trials, those of `space` vary."""

    model: str | Path | SentenceTransformer
    data: list[Objective]
    place: Output
    config: TuneConfig
    shared: dict[str, Any]
    space: SearchSpace

    def run(self) -> list[Trial]:
        """Run the trials that are missing."""
        self._begin()
        study = _open_study(self.place.path / STUDY_FILE)
        for number in range(len(study.trials), self.config.trials):
            self._run_trial(study, number)
        return [
            Trial(done.number, done.params, done.value, *map(notes.get, ("steps", "failure", "start")))
            for done in study.trials
            for notes in [done.user_attrs]
        ]

    def trial_config(self, sampled: Mapping[str, Any]) -> TrainConfig:
        """The settings of a trial.

        Raises:
            UsageError: they contradict each other.
        """
        return TrainConfig.of(None, **{**self.shared, **sampled})

    def _begin(self) -> None:
        """Check what all trials share, and that the search in the folder, if any, is the same."""
        if isinstance(self.model, SentenceTransformer):
            model = self.model.to("cpu") if self.config.offload_experts else self.model
        else:
            model = load(self.model, int8=False, device="cpu")
        problems = [self._problem(model, end) for end in (0, -1)]
        if all(problems):
            raise problems[-1]  # type: ignore[misc]
        identity = {
            "model": fingerprint_of(model),
            "data": [objective.fingerprint() for objective in self.data],
            "config": self.config.model_dump(mode="json", exclude={"trials", "offload_experts"}),
            "space": {name: sampled.model_dump(mode="json") for name, sampled in self.space.items()},
        }
        self.place.begin(identity)

    def _problem(self, model: SentenceTransformer, end: int) -> SentenceExpertsError | None:
        """What is wrong with the settings for this model and data, with the lowest draw or the highest.

        The pairs need only fill the smallest batch that is drawn.
        """
        try:
            config = self.trial_config({name: varied.extremes[end] for name, varied in self.space.items()})
            check_settings(model, config)
            routes = trained_routes(self.data, config, model)
            choose_trainable(model, config).restore()
            sizes = self.space["batch_size"].extremes if "batch_size" in self.space else (config.batch_size,)
            RouteBatches(TrainingSet.of(self.data, routes, config), min(sizes), processes.count())
        except (UsageError, InputError) as error:
            return error
        return None

    def _run_trial(self, study: Study, number: int) -> None:
        """Draw settings, train with them (or continue an interrupted trial), and record the outcome."""
        optuna = require("optuna", "tune")
        distributions = {name: varied.distribution() for name, varied in self.space.items()}
        sampled = draw(study, number, self.config, distributions)
        values = ", ".join(f"{name} {short(value)}" for name, value in sampled.items())
        logger.info(f"trial {number + 1} of {self.config.trials}: {values}")
        folder = self.place.path / TRIALS / f"{number:03}"
        try:
            model = deepcopy(self.model)
            result = train(model, self.data, self.trial_config(sampled), folder)
            if result.validation is None:
                raise SentenceExpertsError(
                    "trials cannot be compared: the validation pairs are all linked or all not"
                )
            outcome = {"state": optuna.trial.TrialState.COMPLETE, "value": result.validation}
            notes: dict[str, Any] = {"steps": result.steps, "start": result.start}
        except NoSpaceError:
            raise
        except FAILURES as error:
            logger.info(f"trial {number + 1} failed: {error}")
            outcome, notes = {"state": optuna.trial.TrialState.FAIL}, {"failure": str(error)}
        study.add_trial(
            optuna.trial.create_trial(
                **outcome, params=sampled, distributions=distributions, user_attrs=notes
            )
        )
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # only an unfinished run needs them


def draw(study: Study, number: int, config: TuneConfig, distributions: dict[str, Any]) -> dict[str, Any]:
    """What trial `number` draws from optuna's `distributions`: setting -> value.

    The study, of the trials before, from which some samplers learn, stays as it is.
    """
    optuna = require("optuna", "tune")
    seed = int(sha256_text(str(config.search_seed), str(number))[:8], 16)
    samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
    scratch = optuna.create_study(direction="maximize", sampler=samplers[config.sampler](seed=seed))
    scratch.add_trials(study.trials)
    params: dict[str, Any] = scratch.ask(distributions).params
    return params


def short(value: Any) -> str:
    """A value as it is shown in tables."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _open_study(file: Path) -> Study:
    """The study in an SQLite file; a new one is written completely or not at all."""
    optuna = require("optuna", "tune")
    if not file.exists():
        with replacing(file) as temporary:
            storage = optuna.storages.RDBStorage(f"sqlite:///{temporary}")
            optuna.create_study(study_name=STUDY, storage=storage, direction="maximize")
            storage.remove_session()
            storage.engine.dispose()
    study: Study = optuna.load_study(study_name=STUDY, storage=f"sqlite:///{file}")
    return study

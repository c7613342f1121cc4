"""Search for training settings with optuna, on a sample of the training pairs (Hallee 2024, section 3.3).

Every trial is an ordinary training run in OUT/trials, and is recorded in OUT/study.db once it is finished.
Its settings follow from the search's seed, its number and, with `tpe`, the trials before it, so that an
interrupted search draws the same ones again.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer

from sentence_experts.config import SettingError, with_settings
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError, brief, require
from sentence_experts.models.loading import load
from sentence_experts.storage import NoSpaceError, check_apart, output, sha256_text, temporary_folder
from sentence_experts.training.config import TrainConfig, TuneConfig
from sentence_experts.training.objectives import Objective, open_data
from sentence_experts.training.run import Run, train
from sentence_experts.training.trainer import BadNumbersError
from sentence_experts.yaml_files import read_settings

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

BEST, STUDY, TRIALS = "best.yaml", "study.db", "trials"
NOTES = ("steps", "failure", "start")
# Errors that drawn settings can cause: infinite numbers, too much memory, too few steps or pairs.
FAILURES = (BadNumbersError, torch.OutOfMemoryError, UsageError, InputError)
# Batch size, warmup and length are what the preprint (3.3) searched. It states only the range of the batch
# size; the others reach from none to well beyond what its final runs used.
PREPRINT_SPACE: dict[str, dict[str, Any]] = {
    "batch_size": {"type": "int", "low": 5, "high": 20},
    "warmup": {"type": "float", "low": 0.0, "high": 0.5},
    "epochs": {"type": "float", "low": 1.0, "high": 10.0},
}
EXAMPLE = "'batch_size: {type: int, low: 5, high: 20}'"
# A setting -> the one that it overrides.
OVERRIDES = {"max_steps": "epochs", "warmup_steps": "warmup"}


@dataclass(frozen=True)
class Trial:
    """A finished trial, counted from 0.

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
        return f"TuneResult({len(self.trials)} trials, best={self.best.best:.4f} with {self.best.settings})"

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per trial: number, a column per setting, steps, best, failure."""
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
    optuna = require("optuna", "tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    chosen = TuneConfig.of(config, **settings)
    searched = read_space(space, chosen)
    check_apart(out, overwrite, model, data, space)
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(temporary_folder())) / "search"
        names = (BEST, STUDY, TRIALS)
        place = stack.enter_context(output(folder, "search", names=names, grows=True, overwrite=overwrite))
        objectives = open_data(data)
        place.begin(_checked_identity(model, objectives, chosen, searched))
        study = optuna.create_study(
            study_name="settings",
            storage=f"sqlite:///{place.path / STUDY}",
            direction="maximize",
            load_if_exists=True,
        )
        for number in range(len(study.trials), chosen.trials):
            drawn = draw(study.trials, chosen, searched)
            logger.info(f"trial {number + 1} of {chosen.trials}: {drawn}")
            trial_folder = place.path / TRIALS / f"{number:03}"
            outcome = _run_trial(deepcopy(model), objectives, _settings_of(chosen, drawn), trial_folder)
            study.add_trial(optuna.trial.create_trial(params=drawn, distributions=searched, **outcome))
        trials = [
            Trial(done.number, done.params, done.value, *map(done.user_attrs.get, NOTES))
            for done in study.trials
        ]
        best = best_of(trials)
        best_config = TrainConfig.of(_settings_of(chosen, {**best.settings, "fraction": 1.0}))
        best_config.write(place.path / BEST)
        place.finish(BEST)
    return TuneResult(trials, best, best_config, None if out is None else folder)


def best_of(trials: list[Trial]) -> Trial:
    """Return the trial with the highest validation figure, the first of equals.

    Raises:
        SentenceExpertsError: every trial failed.
    """
    finished = [trial for trial in trials if trial.best is not None]
    if not finished:
        raise SentenceExpertsError(
            f"all {len(trials)} trials failed, the last with: {trials[-1].failure}; give another `space`"
        )
    best = max(finished, key=lambda trial: trial.best or 0.0)
    if best.best == best.start:
        logger.warning(f"no trial made the model better than it was before training ({best.start:.4f})")
    return best


def _settings_of(config: TuneConfig, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a trial: those that are given, and the ones it drew."""
    given = config.model_fields_set & TrainConfig.model_fields.keys() | {"fraction"}
    return {name: getattr(config, name) for name in given} | dict(drawn)


def _checked_identity(
    model: str | Path | SentenceTransformer,
    objectives: Sequence[Objective],
    config: TuneConfig,
    space: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what decides a search; raise an error that no draw can avoid."""
    if not isinstance(model, SentenceTransformer):
        model = load(model, int8=False, device="cpu")
    values = {name: ends_of(distribution) for name, distribution in space.items()}
    problems = []
    for number in range(max(map(len, values.values()))):
        drawn = {name: each[number % len(each)] for name, each in values.items()}
        try:
            run = Run.of(model, objectives, TrainConfig.of(_settings_of(config, drawn)))
            run.restore()
            run.batches()
        except (UsageError, InputError) as error:
            problems.append(error)
        else:
            to_json = require("optuna.distributions", "tune").distribution_to_json
            return run.identity() | {
                "config": config.model_dump(mode="json", exclude={"trials", "offload_experts"}),
                "space": {name: json.loads(to_json(each)) for name, each in space.items()},
            }
    raise problems[0]


def _run_trial(
    model: Any, objectives: list[Objective], settings: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Train, or continue an interrupted trial; return its state, figure and notes as optuna stores them."""
    state = require("optuna.trial", "tune").TrialState
    try:
        result = train(model, objectives, out=folder, **settings)
    except NoSpaceError:
        raise
    except FAILURES as error:
        logger.info(f"the trial failed: {error}")
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return {"state": state.FAIL, "user_attrs": {"failure": str(error)}}
    if result.validation is None:
        raise SentenceExpertsError(
            "trials cannot be compared: the validation pairs are all linked or all not"
        )
    notes = {"steps": result.steps, "start": result.start}
    return {"state": state.COMPLETE, "value": result.validation, "user_attrs": notes}


def draw(trials: list[Any], config: TuneConfig, space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the next trial, from optuna's distributions and trials."""
    optuna = require("optuna", "tune")
    seed = int(sha256_text(str(config.search_seed), str(len(trials)))[:8], 16)
    samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
    study = optuna.create_study(direction="maximize", sampler=samplers[config.sampler](seed=seed))
    study.add_trials(trials)
    params: dict[str, Any] = study.ask(space).params
    return params


def read_space(source: Mapping[str, Any] | Path | str | None, config: TrainConfig) -> dict[str, Any]:
    """Return the settings to search, each with optuna's distribution, without those that `config` fixes.

    Args:
        source: a mapping, a YAML file with a line such as `batch_size: {type: int, low: 5, high: 20}` for
            each setting, or None for `PREPRINT_SPACE`.
        config: the settings of all trials.

    Raises:
        InputError: no such file, or it is not a space of training settings.
        UsageError: the mapping is not one, or nothing is left to search.
    """
    distributions = require("optuna.distributions", "tune")
    kinds: dict[str, tuple[Any, Any]] = {
        "int": (distributions.IntDistribution, index),  # which refuses 4.5
        "float": (distributions.FloatDistribution, float),  # since YAML reads 1e-6 as text
        "categorical": (distributions.CategoricalDistribution, None),
    }
    problem: type[SentenceExpertsError]
    content: Mapping[str, Any]
    if source is None or isinstance(source, Mapping):
        where, problem, content = "`space`", UsageError, PREPRINT_SPACE if source is None else source
    else:
        where, problem, content = str(source), InputError, read_settings(source)
    if not content:
        raise problem(f"{where}: no settings; give lines such as {EXAMPLE}")
    space = {}
    for name, values in content.items():
        try:
            options = dict(values)
            kind, number = kinds[options.pop("type")]
            options |= {end: number(options[end]) for end in ("low", "high") if end in options}
            space[name] = kind(**options)
            for value in ends_of(space[name]):
                TrainConfig(**{name: value})
        except SettingError as error:
            raise problem(f"{where}: {error.name or name}: {error.reason}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise problem(f"{where}: {name}: {brief(error)}; give a line such as {EXAMPLE}") from error
    for stronger, weaker in OVERRIDES.items():
        if {stronger, weaker} <= space.keys():
            raise problem(f"{where}: {stronger} overrides {weaker}; search one of them")
    overridden = {weaker for stronger, weaker in OVERRIDES.items() if getattr(config, stronger) is not None}
    left = {name: each for name, each in space.items() if name not in config.model_fields_set | overridden}
    if not left:
        raise UsageError(f"nothing to search: {', '.join(space)} are given; leave one out, or give a `space`")
    return left


def ends_of(distribution: Any) -> tuple[Any, ...]:
    """Return the lowest and the highest value of a range, or all choices."""
    return getattr(distribution, "choices", None) or (distribution.low, distribution.high)

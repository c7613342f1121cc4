"""Search for training settings with optuna, on a sample of the training pairs (Hallee 2024, section 3.3)."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from sentence_transformers import SentenceTransformer

from sentence_experts.config import SettingError, with_settings
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError, brief, require
from sentence_experts.models.files.fingerprint import fingerprint_of
from sentence_experts.models.loading import load
from sentence_experts.storage import NoSpaceError, check_apart, output, sha256_text, temporary_folder
from sentence_experts.training.config import TrainConfig, TuneConfig
from sentence_experts.training.data import open_data
from sentence_experts.training.run import train
from sentence_experts.training.trainer import BadNumbersError
from sentence_experts.yaml_files import read_settings

logger = logging.getLogger(__name__)

BEST, STUDY, TRIALS = "best.yaml", "study.db", "trials"
# Errors that drawn settings can cause: infinite numbers, too much memory, too few steps or pairs.
FAILURES = (BadNumbersError, torch.OutOfMemoryError, UsageError, InputError)
# What the preprint (3.3) searched. It states only the range of the batch size; the others reach from none to
# well beyond what its final runs used.
PREPRINT_SPACE: dict[str, dict[str, Any]] = {
    "batch_size": {"type": "int", "low": 5, "high": 20},
    "warmup": {"type": "float", "low": 0.0, "high": 0.5},
    "epochs": {"type": "float", "low": 1.0, "high": 10.0},
}
EXAMPLE = "'batch_size: {type: int, low: 5, high: 20}'"


@dataclass(frozen=True)
class Trial:
    """A trial: its number from 0, settings, validation figure (None if it failed), steps, failure."""

    number: int
    settings: dict[str, Any]
    best: float | None
    steps: int | None = None
    failure: str | None = None


@dataclass(frozen=True, repr=False)
class TuneResult:
    """A finished search: its trials, the best of them, its settings for `train`, and the folder if any."""

    trials: list[Trial]
    best: Trial
    config: TrainConfig
    out: Path | None = None

    def __repr__(self) -> str:
        return f"TuneResult({len(self.trials)} trials, best={self.best.best:.4f} with {self.best.settings})"

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per trial: number, a column per setting, steps, best, failure."""
        rows = [{"trial": each.number, **each.settings, **vars(each)} for each in self.trials]
        return pd.DataFrame(rows)[["trial", *self.best.settings, "steps", "best", "failure"]]


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
        model, data: arguments of `train`; every trial trains a copy of the model.
        config: settings of the search and of all trials; `settings` replace single ones. Training settings
            that are given are not searched.
        out: folder for the search: trials/, study.db, best.yaml (the settings of the best trial). The same
            search continues there, also with more `trials`, and draws the same settings.
        overwrite: start over, replacing another search in `out`.
        space: the settings to search, or a YAML file of them: {"warmup": {"type": "float", "low": 0, "high":
            0.5}}; types: "int" and "float" (with "log": true if wanted), "categorical" (with "choices").
            Default: `PREPRINT_SPACE`.

    Raises:
        UsageError: `out` holds something else, or there is nothing to search.
        SentenceExpertsError: optuna is not installed, or every trial failed.
        InputError: the model, the data or the space cannot be read.

    Example:
        >>> result = tune("model", "pairs", trials=1, epochs=1, max_steps=2, eval_steps=2, warmup=0)
        >>> list(result.best.settings)
        ['batch_size']
    """
    chosen = TuneConfig.of(config, **settings)
    searched = read_space(space, chosen)
    check_apart(out, overwrite, model, data, space)
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(temporary_folder())) / "search"
        names = (BEST, STUDY, TRIALS)
        place = stack.enter_context(output(folder, "search", names=names, grows=True, overwrite=overwrite))
        parts = open_data(data)
        loaded = model if isinstance(model, SentenceTransformer) else load(model, device="cpu")
        place.begin({
            "model": fingerprint_of(loaded),
            "data": [part.fingerprint() for part in parts],
            "config": chosen.model_dump(mode="json", exclude={"trials"}),
            "space": {name: str(distribution) for name, distribution in searched.items()},
        })  # fmt: skip
        given = chosen.model_fields_set & TrainConfig.model_fields.keys() | {"fraction"}
        shared = {name: getattr(chosen, name) for name in given}
        trials = _run_trials(model, parts, shared, chosen, searched, place.path)
        best = max(trials, key=lambda trial: -math.inf if trial.best is None else trial.best)
        if best.best is None:
            raise SentenceExpertsError(
                f"all {len(trials)} trials failed, the last with: {trials[-1].failure}; give other settings, "
                "or another `space`, and `overwrite`"
            )
        best_config = TrainConfig.of(shared | best.settings | {"fraction": 1.0})
        best_config.write(place.path / BEST)
        place.finish(BEST)
    return TuneResult(trials, best, best_config, None if out is None else folder)


def _run_trials(
    model: Any, data: Any, shared: dict[str, Any], config: TuneConfig, space: Mapping[str, Any], out: Path
) -> list[Trial]:
    """Make the trials that are missing, each with the `shared` settings and those it draws; return all."""
    optuna = require("optuna", "tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name="settings", storage=f"sqlite:///{out / STUDY}", direction="maximize", load_if_exists=True
    )
    for number in range(len(study.trials), config.trials):
        # Drawn outside the study, in which only finished trials are: an interrupted one is drawn again.
        seed = int(sha256_text(str(config.seed), str(number))[:8], 16)
        drawing = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        made: dict[str, Any] = {"params": drawing.ask(space).params, "distributions": space}
        logger.info(f"trial {number + 1} of {config.trials}: {made['params']}")
        try:
            settings = {**shared, **made["params"]}
            result = train(deepcopy(model), data, out=out / TRIALS / f"{number:03}", **settings)
        except NoSpaceError:
            raise
        except FAILURES as error:
            logger.info(f"the trial failed: {error}")
            made |= {"state": optuna.trial.TrialState.FAIL, "user_attrs": {"failure": str(error)}}
        else:
            if result.validation is None:
                raise SentenceExpertsError(
                    "trials cannot be compared: the validation pairs are all linked or all not"
                )
            made |= {"value": result.validation, "user_attrs": {"steps": result.steps}}
        study.add_trial(optuna.trial.create_trial(**made))
    return [Trial(each.number, each.params, each.value, **each.user_attrs) for each in study.trials]


def read_space(source: Mapping[str, Any] | Path | str | None, config: TrainConfig) -> dict[str, Any]:
    """Return the settings to search, each with optuna's distribution, without those that `config` fixes.

    Raises:
        InputError: no such file, or it is not a space of training settings.
        UsageError: nothing is left to search.
    """
    distributions = require("optuna.distributions", "tune")
    is_file = isinstance(source, str | Path)
    content = read_settings(source) if isinstance(source, str | Path) else source or PREPRINT_SPACE
    where = str(source) if is_file else "`space`"
    space = {}
    for name, values in content.items():
        try:
            options = {key: value for key, value in values.items() if key != "type"}
            if values["type"] == "float":  # YAML reads 1e-6 as text
                options |= {end: float(options[end]) for end in ("low", "high")}
            space[name] = getattr(distributions, f"{values['type'].capitalize()}Distribution")(**options)
            for value in values.get("choices") or (values["low"], values["high"]):
                TrainConfig(**{name: value})
        except (SettingError, AttributeError, KeyError, TypeError, ValueError) as error:
            reason = error.reason if isinstance(error, SettingError) else brief(error)
            raise InputError(f"{where}: {name}: {reason}; give a line such as {EXAMPLE}") from error
    if not space:
        raise InputError(f"{where}: no settings; give lines such as {EXAMPLE}")
    # A setting that another one overrides is not searched.
    without = {"epochs"} if config.max_steps or "max_steps" in space else set()
    without |= {"warmup"} if config.warmup_steps is not None else set()
    left = {name: each for name, each in space.items() if name not in config.model_fields_set | without}
    if not left:
        raise UsageError(f"nothing to search: {', '.join(space)} are given; leave one out, or give a `space`")
    return left

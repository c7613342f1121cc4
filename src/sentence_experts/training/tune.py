"""Random search for training settings, on a sample of the training pairs (Hallee 2024, section 3.3)."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from pydantic import BaseModel, model_validator
from sentence_transformers import SentenceTransformer

from sentence_experts.config import SettingError, check_content, with_settings
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.models.files.fingerprint import fingerprint_with_settings
from sentence_experts.models.loading import load
from sentence_experts.models.sources import RUN_FILE
from sentence_experts.storage import (
    RECORD,
    InUseError,
    NoSpaceError,
    Output,
    check_apart,
    output,
    read_json,
    read_record,
    temporary_folder,
)
from sentence_experts.training.config import TrainConfig, TuneConfig
from sentence_experts.training.data import open_data
from sentence_experts.training.run import train
from sentence_experts.training.trainer import BadNumbersError
from sentence_experts.yaml_files import read_settings

logger = logging.getLogger(__name__)

BEST, TRIALS = "best.yaml", "trials"
# Errors that drawn settings can cause: infinite numbers, too much memory, too few steps or pairs.
FAILURES = (BadNumbersError, torch.OutOfMemoryError, UsageError, InputError)
# The space that the preprint (3.3) searched. It states only the range of the batch size; the others reach
# from none to well beyond its final runs.
PREPRINT_SPACE: dict[str, dict[str, Any]] = {
    "batch_size": {"type": "int", "low": 5, "high": 20},
    "warmup": {"type": "float", "low": 0.0, "high": 0.5},
    "epochs": {"type": "float", "low": 1.0, "high": 10.0},
}
_DECIDING = {"pair_metric", "fraction", "routes"}  # settings that decide what a trial's figure is
EXAMPLE = "'batch_size: {type: int, low: 5, high: 20}'"


class Values(BaseModel, extra="forbid", frozen=True):
    """The values of a setting that trials draw from: a range, or choices."""

    type: Literal["int", "float", "categorical"]
    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        bounds = [each for each in (self.low, self.high) if each is not None]
        if self.type == "categorical":
            if not self.choices or bounds:
                raise ValueError("give choices" + " alone" * bool(bounds))
        elif self.choices:
            raise ValueError("choices are for the type categorical")
        elif self.low is None or self.high is None:
            raise ValueError(f"give low and high, such as {EXAMPLE}")
        elif not all(map(math.isfinite, bounds)):
            raise ValueError(f"low and high are finite numbers (got {self.low} and {self.high})")
        elif self.low > self.high or (self.log and self.low <= 0):
            raise ValueError(f"not low <= high, or not above 0 with log (got {self.low} and {self.high})")
        elif self.type == "int" and any(each != int(each) for each in bounds):
            raise ValueError(f"low and high of int are whole numbers (got {self.low} and {self.high})")
        return self

    def draw(self, random: np.random.Generator) -> Any:
        """Return a value at random."""
        if self.type == "categorical" or self.low is None or self.high is None:
            return self.choices[random.integers(len(self.choices))]
        if self.type == "int" and not self.log:
            return int(random.integers(int(self.low), int(self.high), endpoint=True))
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = math.exp(random.uniform(low, high)) if self.log else random.uniform(low, high)
        return round(value) if self.type == "int" else float(value)


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
        out: folder for the search: trials/, best.yaml (the settings of the best trial). The same
            search continues there, also with more `trials`, and draws the same settings.
        overwrite: start over, replacing another search in `out`.
        space: the settings to search, or a YAML file of them: {"warmup": {"type": "float", "low": 0, "high":
            0.5}}; types: "int" and "float" (with "log": true if wanted), "categorical" (with "choices").
            In another order they draw other values.
            Default: `PREPRINT_SPACE`.

    Raises:
        UsageError: `out` holds something else, or there is nothing to search.
        SentenceExpertsError: every trial failed.
        InputError: the model, the data or the space cannot be read, or a finished trial has changed.

    Example:
        >>> space = {"batch_size": {"type": "int", "low": 4, "high": 6}}
        >>> result = tune("model", "pairs", space=space, trials=1, max_steps=2, eval_steps=2)
        >>> list(result.best.settings)
        ['batch_size']
    """
    chosen = TuneConfig.of(config, **settings)
    searched = read_space(space, chosen)
    check_apart(out, overwrite, model, data, space)
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(temporary_folder())) / "search"
        names = (BEST, TRIALS)
        place = stack.enter_context(output(folder, "search", names=names, grows=True, overwrite=overwrite))
        parts = open_data(data)
        identity = {
            "config": chosen.model_dump(mode="json", exclude={"trials"}),
            "space": {name: values.model_dump(mode="json") for name, values in searched.items()},
        }
        inputs: dict[str, Callable[[], Any]] = {
            "model": lambda: fingerprint_with_settings(
                model if isinstance(model, SentenceTransformer) else load(model, device="cpu")
            ),
            "data": lambda: [part.fingerprint() for part in open_data(data)],
        }
        place.begin(identity, inputs)
        given = chosen.model_fields_set & TrainConfig.model_fields.keys() | {"fraction"}
        shared = {name: getattr(chosen, name) for name in given}
        trials = _run_trials(model, parts, shared, chosen, searched, place)
        best = max(trials, key=lambda trial: -math.inf if trial.best is None else trial.best)
        if best.best is None:
            raise SentenceExpertsError(
                f"all {len(trials)} trials failed, the last with: {trials[-1].failure}; give other settings, "
                "or another `space`, and `overwrite`"
            )
        best_config = TrainConfig.of(shared | best.settings | {"fraction": 1.0})
        best_config.write(place.path / BEST)
        place.names = (BEST, *(f"{TRIALS}/{trial.number:03}" for trial in trials))
        place.finish(BEST)
    return TuneResult(trials, best, best_config, None if out is None else folder)


def _run_trials(
    model: Any, data: Any, shared: dict[str, Any], config: TuneConfig, space: Mapping[str, Values],
    place: Output,
) -> list[Trial]:  # fmt: skip
    """Make the trials, each with the `shared` settings and those it draws; a finished one is only read."""
    trials, out, learned = list[Trial](), place.path, False
    # Those of an earlier search with more trials count too: its best one stays the best.
    finished = [int(each.parent.name) + 1 for each in (out / TRIALS).glob(f"[0-9]*/{RUN_FILE}")]
    count = max(config.trials, *finished, 0)
    for number in range(count):
        random = np.random.default_rng((config.seed, number))
        drawn = {name: values.draw(random) for name, values in space.items()}
        logger.info(f"trial {number} ({number + 1} of {count}): {drawn}")
        folder, settings = out / TRIALS / f"{number:03}", {**shared, **drawn}
        is_finished = (folder / RUN_FILE).is_file() or bool((read_record(folder / RECORD) or {}).get("files"))
        try:
            result = train(deepcopy(model), data, out=folder, **settings)
        except (NoSpaceError, InUseError):
            raise
        except FAILURES as error:
            place.check_inputs()  # which make every setting fail
            if is_finished:
                if isinstance(error, UsageError) and _drew_others(folder, drawn):
                    raise UsageError(
                        f"{folder}: this trial drew other values from the same space, whose settings stood "
                        f"in another order: give them in that one, or remove {place.final} to start over"
                    ) from error
                raise InputError(f"{error} (remove {folder} to make this trial alone again)") from error
            logger.info(f"the trial failed: {error}")
            shutil.rmtree(folder, ignore_errors=True)  # tried again if the search is continued
            trials.append(Trial(number, drawn, None, failure=str(error)))
            continue
        if result.validation is None:
            raise SentenceExpertsError(
                "trials cannot be compared: the validation pairs are all linked or all not"
            )
        trials.append(Trial(number, drawn, result.validation, result.steps))
        learned |= result.kept_step > 0
    if not learned and any(trial.best is not None for trial in trials):
        logger.warning("no trial was better than the model before training: its figure is that of the best")
    return trials


def _drew_others(folder: Path, drawn: Mapping[str, Any]) -> bool:
    """Return whether a finished trial has other values than those that are drawn now."""
    config = read_json(folder / RUN_FILE)["config"]
    return any(config[name] != value for name, value in drawn.items())


def read_space(source: Mapping[str, Any] | Path | str | None, config: TrainConfig) -> dict[str, Values]:
    """Return the settings to search, each with its values, without those that `config` fixes.

    Raises:
        InputError: no such file, or it is not a space of training settings.
        UsageError: nothing is left to search.
    """
    is_file = isinstance(source, str | Path)
    content = read_settings(source) if isinstance(source, str | Path) else source or PREPRINT_SPACE
    where = str(source) if is_file else "`space`"
    space = {}
    for name, given in content.items():
        if name in _DECIDING:
            raise InputError(f"{where}: {name}: trials that differ by it cannot be compared; set it for all")
        values = space[name] = check_content(Values, given, f"{where}: {name}")
        for value in values.choices or (values.low, values.high):
            try:
                TrainConfig(**{name: value})
            except SettingError as error:
                raise InputError(f"{where}: {name}: {error.reason}") from error
    if not space:
        raise InputError(f"{where}: no settings; give lines such as {EXAMPLE}")
    # A setting that another one overrides is not searched.
    without = {"epochs"} if config.max_steps or "max_steps" in space else set()
    without |= {"warmup"} if config.warmup_steps is not None else set()
    for name in sorted(without & space.keys()) if source else ():
        steps = "max_steps" if name == "epochs" else "warmup_steps"
        logger.warning(f"{where}: {name}: not searched, as `{steps}` is given, which overrides it")
    left = {name: each for name, each in space.items() if name not in config.model_fields_set | without}
    if not left:
        raise UsageError(f"nothing to search: {', '.join(space)} are given; leave one out, or give a `space`")
    return left

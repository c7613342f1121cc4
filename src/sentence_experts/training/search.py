"""Search for training settings: random by default, on a sample of the training pairs, with optuna.

Source: Hallee et al. 2024 (preprint), 3.3. Every trial is an ordinary training run in OUT/trials, and is
recorded in OUT/study.db once it is finished. What a trial draws follows from the search's seed, the trial's
number and, for samplers that learn, the trials before it: a search that was killed at any moment and goes on
makes the trials that it would have made anyway.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError, require
from sentence_experts.models.loading import load
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.pairs.subset import sample_training
from sentence_experts.storage import read_json, replacing, sha256_text, write_json
from sentence_experts.training.callbacks import BadNumbersError
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.run import check_settings, train
from sentence_experts.training.search_space import SearchSpace

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

logger = logging.getLogger(__name__)

STUDY = "settings"
# What a bad draw can do to a run: wild numbers, too much memory, too few steps or pairs for what was drawn.
# What no draw could mend has shown before the first trial (`_check_shared`); anything else stops the search.
FAILURES = (BadNumbersError, torch.OutOfMemoryError, UsageError, InputError)
SAMPLERS: Mapping[str, Callable[[Any, int], BaseSampler]] = {
    "random": lambda samplers, seed: samplers.RandomSampler(seed=seed),
    "tpe": lambda samplers, seed: samplers.TPESampler(seed=seed),
}


@dataclass(frozen=True)
class SearchPlan:
    """What is searched, on what.

    Attributes:
        model: folder or hub id of the model that every trial trains.
        pairs: the dataset; its training pairs are sampled, its validation pairs are the measure.
        out: the folder of the search.
        config: the settings that all trials share.
        space: the settings that vary.
        trials: how many.
        share: how much of each domain's training pairs a trial sees.
        sampler: a name in `SAMPLERS`.
        seed: fixes the sample of pairs and what each trial draws.
    """

    model: str
    pairs: PairsFolder
    out: Path
    config: TrainConfig
    space: SearchSpace
    trials: int = 20
    share: float = 0.1
    sampler: str = "random"
    seed: int = 0


@dataclass(frozen=True)
class Trial:
    """One finished trial: its number, what it drew, its best validation F1max or why there is none."""

    number: int
    drawn: dict[str, Any]
    f1_max: float | None
    steps: int | None
    failure: str | None


def search(plan: SearchPlan, resume: bool = False) -> list[Trial]:
    """Run the trials that are missing; write `best.yaml`, the settings of the best, for `train --config`.

    Raises:
        UsageError: `out` holds a search and `resume` was not asked for, or it was another search; or the
            shared settings do not suit the model or the dataset, whatever is drawn.
        SentenceExpertsError: optuna is not installed, or no trial has finished.
        InputError: as `train`.
    """
    require("optuna", "tune").logging.set_verbosity(require("optuna", "tune").logging.WARNING)
    if plan.sampler not in SAMPLERS:
        raise UsageError(f"sampler {plan.sampler!r}: choose one of {', '.join(SAMPLERS)}")
    _prepare(plan, resume)
    if not (plan.out / "pairs").exists():
        sample_training(plan.pairs, plan.share, plan.seed).save(plan.out / "pairs")
    sample = PairsFolder.open(plan.out / "pairs")
    study = _open_study(plan.out / "study.db")
    for number in range(len(study.trials), plan.trials):
        _run_trial(study, number, plan, sample)
    trials = [_finished(trial) for trial in study.trials]
    best = best_of(trials)
    _config(plan, best.drawn).write(plan.out / "best.yaml")
    return trials


def best_of(trials: list[Trial]) -> Trial:
    """The trial with the highest validation F1max, the first of equals.

    Raises:
        SentenceExpertsError: every trial failed.
    """
    finished = [trial for trial in trials if trial.f1_max is not None]
    if not finished:
        raise SentenceExpertsError(
            f"all {len(trials)} trials failed, the last with: {trials[-1].failure}; give another --space"
        )
    return max(finished, key=lambda trial: trial.f1_max or 0.0)


def _check_shared(plan: SearchPlan, model: SentenceTransformer) -> None:
    """Refuse settings that suit the model and the dataset neither with the lowest draw nor the highest."""
    for end in (0, -1):
        drawn = {name: varied.extremes[end] for name, varied in plan.space.items()}
        try:
            check_settings(model, plan.pairs, _config(plan, drawn))
            return
        except UsageError as error:
            problem = error
    raise problem


def _prepare(plan: SearchPlan, resume: bool) -> None:
    """Check what all trials share; note what this search is, or that the one in the folder is the same."""
    encoder = BatchEncoder(load(plan.model, int8=False))
    _check_shared(plan, encoder.model)
    identity = {
        "model": encoder.fingerprint,
        "pairs": plan.pairs.fingerprint(),
        "config": plan.config.model_dump(),
        "space": {name: drawn.model_dump(mode="json") for name, drawn in plan.space.items()},
        "share": plan.share,
        "sampler": plan.sampler,
        "seed": plan.seed,
    }
    started = plan.out / "search.json"
    if not started.exists():
        if plan.out.exists() and any(plan.out.iterdir()):
            raise UsageError(f"{plan.out}: not empty and not a search; give another --out")
        write_json(started, identity)
        return
    if not resume:
        raise UsageError(f"{plan.out}: holds a search already; go on with --resume, or give another --out")
    before = read_json(started)
    for key, value in identity.items():
        if before[key] != value:
            raise UsageError(f"{plan.out}: this search was started with another {key}: {before[key]}")


def _open_study(file: Path) -> Study:
    """The study in an SQLite file; a new one is there whole or not at all."""
    optuna = require("optuna", "tune")
    if not file.exists():
        with replacing(file) as temporary:
            storage = optuna.storages.RDBStorage(f"sqlite:///{temporary}")
            optuna.create_study(study_name=STUDY, storage=storage, direction="maximize")
            storage.remove_session()
            storage.engine.dispose()
    study: Study = optuna.load_study(study_name=STUDY, storage=f"sqlite:///{file}")
    return study


def _run_trial(study: Study, number: int, plan: SearchPlan, sample: PairsFolder) -> None:
    """Draw settings, train with them (or go on where a killed search stopped), and record the outcome."""
    optuna = require("optuna", "tune")
    distributions = {name: drawn.distribution() for name, drawn in plan.space.items()}
    drawn = draw(study, number, plan, distributions)
    logger.info(
        f"trial {number + 1} of {plan.trials}: " + ", ".join(f"{k} {_short(v)}" for k, v in drawn.items())
    )
    folder = plan.out / "trials" / f"{number:03}"
    try:
        result = train(plan.model, sample, folder, _config(plan, drawn), resume=True)
        outcome = {"state": optuna.trial.TrialState.COMPLETE, "value": result["best_validation_f1_max"]}
        notes: dict[str, Any] = {"steps": result["steps"]}
    except FAILURES as error:
        logger.info(f"trial {number + 1} failed: {error}")
        outcome, notes = {"state": optuna.trial.TrialState.FAIL}, {"failure": str(error)}
    study.add_trial(
        optuna.trial.create_trial(**outcome, params=drawn, distributions=distributions, user_attrs=notes)
    )
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # only an unfinished run needs them


def draw(study: Study, number: int, plan: SearchPlan, distributions: dict[str, Any]) -> dict[str, Any]:
    """What trial `number` draws: setting -> value. The study itself holds finished trials alone, and stays.

    Args:
        study: the trials before, from which some samplers learn.
        number: the trial's number, counted from 0.
        plan: its sampler and seed count.
        distributions: setting -> optuna's distribution.
    """
    optuna = require("optuna", "tune")
    seed = int(sha256_text(str(plan.seed), str(number))[:8], 16)
    scratch = optuna.create_study(direction="maximize", sampler=SAMPLERS[plan.sampler](optuna.samplers, seed))
    scratch.add_trials(study.trials)
    params: dict[str, Any] = scratch.ask(distributions).params
    return params


def _config(plan: SearchPlan, drawn: Mapping[str, Any]) -> TrainConfig:
    return TrainConfig.model_validate({**plan.config.model_dump(), **drawn})


def _finished(trial: FrozenTrial) -> Trial:
    notes = trial.user_attrs
    return Trial(trial.number, trial.params, trial.value, notes.get("steps"), notes.get("failure"))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""A search finishes what it began, draws the same whatever interrupts it, and outlives a bad trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.killed_run import run_until_killed
from sentence_experts.errors import SentenceExpertsError, UsageError
from sentence_experts.pairs.dataset import PairsFolder
from sentence_experts.storage import read_json
from sentence_experts.training.config import TrainConfig
from sentence_experts.training.search import SearchPlan, Trial, best_of, draw, search
from sentence_experts.training.search_space import Categories, FloatRange, IntRange

SHARED = TrainConfig(batch_size=8, learning_rate=1e-3, eval_steps=2, max_steps=4)
SPACE = {
    "batch_size": IntRange(type="int", low=4, high=8),
    "warmup": FloatRange(type="float", low=0.0, high=0.5),
}


@pytest.fixture(scope="module")
def plan(pairs: PairsFolder, tiny_experts: Path, tmp_path_factory: pytest.TempPathFactory) -> SearchPlan:
    out = tmp_path_factory.mktemp("search") / "whole"
    return SearchPlan(str(tiny_experts), pairs, out, SHARED, SPACE, trials=3, share=0.5)


@pytest.fixture(scope="module")
def trials(plan: SearchPlan) -> list[Trial]:
    return search(plan)


def test_every_trial_is_a_run_with_what_it_drew(plan: SearchPlan, trials: list[Trial]) -> None:
    assert [trial.number for trial in trials] == [0, 1, 2]
    assert len({trial.drawn["warmup"] for trial in trials}) == 3
    for trial in trials:
        run = read_json(plan.out / "trials" / f"{trial.number:03}" / "run.json")
        assert run["config"] == {**SHARED.model_dump(), **trial.drawn}
        assert run["best_validation_f1_max"] == trial.f1_max
        assert run["pairs"] == PairsFolder.open(plan.out / "pairs").fingerprint() != plan.pairs.fingerprint()


def test_the_best_settings_are_a_config_for_train(plan: SearchPlan, trials: list[Trial]) -> None:
    best = max(trials, key=lambda trial: trial.f1_max or 0.0)
    config = TrainConfig.read(plan.out / "best.yaml", {})
    assert config == TrainConfig.model_validate({**SHARED.model_dump(), **best.drawn})


def test_the_first_of_equals_is_the_best() -> None:
    figures = (None, 0.5, 0.7, 0.7)
    several = [Trial(number, {}, figure, 1, None) for number, figure in enumerate(figures)]
    assert best_of(several).number == 2


def test_the_seed_decides_what_is_drawn(plan: SearchPlan, trials: list[Trial], tmp_path: Path) -> None:
    (other,) = search(replace(plan, out=tmp_path / "other", trials=1, seed=1))
    assert other.drawn != trials[0].drawn


def _search_in_child(plan: SearchPlan, pairs: Path) -> None:
    search(replace(plan, pairs=PairsFolder.open(pairs)))


def test_a_killed_search_goes_on_as_if_nothing_had_happened(
    plan: SearchPlan, trials: list[Trial], tmp_path: Path
) -> None:
    killed = replace(plan, out=tmp_path / "killed")
    # The second trial has a checkpoint, and neither a result nor a record.
    run_until_killed(
        _search_in_child, (killed, plan.pairs.path), killed.out, "trials/001/checkpoints/checkpoint-2"
    )
    first = (killed.out / "trials" / "000" / "run.json").stat().st_mtime_ns
    with pytest.raises(UsageError, match="--resume"):
        search(killed)
    again = search(killed, resume=True)
    assert (killed.out / "trials" / "000" / "run.json").stat().st_mtime_ns == first, (
        "a finished trial is kept"
    )
    assert [trial.drawn for trial in again] == [trial.drawn for trial in trials]
    for one, other in zip(again, trials, strict=True):
        assert one.f1_max == pytest.approx(other.f1_max, abs=1e-6)
    assert (killed.out / "best.yaml").read_text() == (plan.out / "best.yaml").read_text()


def test_trials_can_be_added(plan: SearchPlan, trials: list[Trial]) -> None:
    more = search(replace(plan, trials=4), resume=True)
    assert more[:3] == trials
    assert len(more) == 4


@pytest.mark.parametrize(("sampler", "learns"), [("random", False), ("tpe", True)])
def test_what_is_drawn_follows_from_seed_number_and_for_tpe_the_trials_before(
    plan: SearchPlan, sampler: str, learns: bool
) -> None:
    import optuna

    distributions = {name: drawn.distribution() for name, drawn in SPACE.items()}

    def after(best_warmup: float) -> dict:
        study = optuna.create_study(direction="maximize")
        for number in range(20):
            params = {"batch_size": 4 + number % 5, "warmup": number / 40}
            value = -abs(params["warmup"] - best_warmup)
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=distributions, value=value)
            )
        drawn = draw(study, 20, replace(plan, sampler=sampler), distributions)
        assert len(study.trials) == 20, "the study holds finished trials alone"
        return drawn

    assert after(0.1) == after(0.1)
    assert (after(0.1) != after(0.4)) == learns


def test_a_trial_that_blows_up_is_recorded_and_the_search_goes_on(plan: SearchPlan, tmp_path: Path) -> None:
    rates = Categories(type="categorical", choices=(1e-3, 1e38))
    wild = replace(plan, out=tmp_path / "wild", space={"learning_rate": rates}, trials=3, seed=2)
    found = search(wild)
    assert {trial.drawn["learning_rate"]: trial.f1_max is None for trial in found} == {
        1e-3: False,
        1e38: True,
    }
    failed = next(trial for trial in found if trial.f1_max is None)
    assert "learning-rate" in (failed.failure or "")
    assert TrainConfig.read(wild.out / "best.yaml", {}).learning_rate == 1e-3
    assert search(wild, resume=True) == found
    all_wild = {"learning_rate": Categories(type="categorical", choices=(1e38,))}
    with pytest.raises(SentenceExpertsError, match="all 1 trials failed"):
        search(replace(wild, out=tmp_path / "hopeless", space=all_wild, trials=1))


def test_draws_that_cannot_run_are_failed_trials(plan: SearchPlan, tmp_path: Path) -> None:
    """Too few steps to climb; a batch that the sample cannot fill; too few different texts for a batch."""
    steps = {"warmup_steps": Categories(type="categorical", choices=(0, 2))}
    sizes = {"batch_size": Categories(type="categorical", choices=(500, 30, 4))}
    cycle = plan.config.model_copy(update={"scheduler": "one_cycle"})
    for change, runs, failures in (
        ({"space": steps, "config": cycle, "trials": 2}, {2}, {"to climb"}),
        ({"space": sizes, "trials": 3}, {4}, {"do not fill", "before any validation"}),
    ):
        # With this seed every choice is drawn once.
        tried = replace(plan, out=tmp_path / str(change["trials"]), seed=4, **change)
        found = search(tried)
        ((setting, _),) = tried.space.items()
        assert {trial.drawn[setting] for trial in found if trial.failure is None} == runs
        said = [trial.failure for trial in found if trial.failure is not None]
        assert all(any(failure in one for one in said) for failure in failures), said
        assert getattr(TrainConfig.read(tried.out / "best.yaml", {}), setting) in runs
        assert search(tried, resume=True) == found


@pytest.mark.parametrize(
    ("update", "space", "message"),
    [
        ({"domains": ["crop"]}, SPACE, "no pairs of crop"),
        ({"only_expert": "neural"}, SPACE, "--only-expert neural"),
        ({"loss": "argmax_target", "scale": 5.0}, SPACE, "--scale"),
        ({"warmup": 0.2}, {"warmup_steps": IntRange(type="int", low=1, high=3)}, "--warmup-steps"),
    ],
)
def test_what_no_draw_can_mend_stops_before_the_first(
    plan: SearchPlan, tmp_path: Path, update: dict, space: dict, message: str
) -> None:
    wrong = replace(plan, out=tmp_path / "search", space=space, config=plan.config.model_copy(update=update))
    with pytest.raises(UsageError, match=message):
        search(wrong)
    assert not wrong.out.exists()


def test_a_draw_may_mend_the_shared_settings(plan: SearchPlan, tmp_path: Path) -> None:
    losses = Categories(type="categorical", choices=("argmax_target", "in_batch_negatives"))
    config = plan.config.model_copy(update={"scale": 5.0})
    found = search(
        replace(plan, out=tmp_path / "search", config=config, space={"loss": losses}, trials=2, seed=4)
    )
    assert {trial.drawn["loss"]: trial.failure is None for trial in found} == {
        "argmax_target": False,
        "in_batch_negatives": True,
    }


def test_another_search_or_folder_is_refused(plan: SearchPlan, trials: list[Trial], tmp_path: Path) -> None:
    for change in ({"seed": 9}, {"share": 0.6}, {"space": dict(list(SPACE.items())[:1])}):
        with pytest.raises(UsageError, match="another"):
            search(replace(plan, **change), resume=True)
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(UsageError, match="not a search"):
        search(replace(plan, out=tmp_path))
    with pytest.raises(UsageError, match="random, tpe"):
        search(replace(plan, out=tmp_path / "new", sampler="grid"))
    assert not (tmp_path / "new").exists()

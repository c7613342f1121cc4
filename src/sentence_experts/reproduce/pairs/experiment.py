"""A recipe on pairs as an experiment."""

from __future__ import annotations

from pathlib import Path

from sentence_experts.reproduce.experiment import Experiment
from sentence_experts.reproduce.pairs.compare import compare
from sentence_experts.reproduce.pairs.plan import Plan, make_plan
from sentence_experts.reproduce.pairs.recipe import Recipe
from sentence_experts.reproduce.pairs.setting import Setting, setting_for


def experiment(
    recipe: Recipe, name: str, scale: str, corpus: Path | None, out: Path, seeds: int | None
) -> Experiment:
    """The recipe in its setting; `name` is the folder of its results.

    Raises:
        UsageError: an unknown scale, `corpus` missing at full scale or given at small scale.
        InputError: SENTENCE_EXPERTS_DATA is set, but the articles are not there.
    """
    setting = setting_for(recipe, scale, corpus, out)
    return experiment_of(recipe, setting, make_plan(recipe, name, setting, seeds))


def experiment_of(recipe: Recipe, setting: Setting, plan: Plan) -> Experiment:
    """A plan as an experiment."""
    return Experiment(
        steps=plan.steps,
        root=setting.root,
        report=plan.report,
        pretrained=tuple(plan.pretrained()),
        writes_first=f"{setting.rules}: the domains in use" if setting.small else None,
        prepare=setting.prepare,
        compare=lambda: compare(recipe, setting, plan),
    )

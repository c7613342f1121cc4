"""A recipe on tasks as an experiment."""

from __future__ import annotations

from pathlib import Path

from sentence_experts.reproduce.experiment import Experiment
from sentence_experts.reproduce.tasks.compare import compare
from sentence_experts.reproduce.tasks.plan import make_plan
from sentence_experts.reproduce.tasks.recipe import read_recipe
from sentence_experts.reproduce.tasks.setting import setting_for


def experiment(path: Path, scale: str, corpus: Path | None, out: Path, seeds: int | None) -> Experiment:
    """The recipe of a file in its setting.

    Raises:
        UsageError: an unknown scale, or a corpus, which no recipe on tasks takes.
        InputError: a faulty recipe, or data that is not there.
    """
    recipe = read_recipe(path)
    setting = setting_for(recipe, scale, corpus, out)
    plan = make_plan(recipe, path.stem, setting, seeds)
    return Experiment(
        steps=plan.steps,
        root=setting.root,
        report=plan.report,
        pretrained=plan.pretrained,
        writes_first=f"{setting.tasks_file}: the tasks, with the folders of their data"
        if setting.small
        else None,
        prepare=setting.prepare,
        compare=lambda: compare(recipe, setting, plan),
    )

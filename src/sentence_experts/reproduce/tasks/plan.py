"""A recipe on tasks as a list of steps, and the models that the last of them evaluates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sentence_experts.reproduce.hub import LOCAL
from sentence_experts.reproduce.step import Step
from sentence_experts.reproduce.tasks import commands
from sentence_experts.reproduce.tasks.recipe import EvaluateOptions, Recipe, Run
from sentence_experts.reproduce.tasks.setting import Setting
from sentence_experts.tasks.task_file import TaskFile

EVALUATED = "tasks.json"


@dataclass(frozen=True)
class Model:
    """A model of the final comparison.

    Attributes:
        label: its name in our evaluation.
        run: the run that it is of.
        sources: one folder a seed.
        base: the pretrained model; `published_base` that of the paper.
        task: the only one that it was trained on; None for a model of all tasks.
    """

    label: str
    run: Run
    sources: tuple[str, ...]
    base: str
    published_base: str
    task: str | None = None

    def options(self) -> list[str]:
        """How `evaluate` is told of it."""
        if len(self.sources) > 1:
            return [part for source in self.sources for part in ("--seeds", f"{self.label}={source}")]
        return [self.sources[0], "--name", f"{self.label}={self.sources[0]}"]


@dataclass(frozen=True)
class Plan:
    """All steps of a recipe in order, and what comes of them.

    Attributes:
        evaluate: how the models are measured, in `evaluation`.
        pretrained: the bases, as the first commands take them.
        report: the folder of the comparison.
    """

    steps: tuple[Step, ...]
    models: tuple[Model, ...]
    evaluate: EvaluateOptions
    evaluation: Path
    pretrained: tuple[str, ...]
    report: Path


def make_plan(recipe: Recipe, name: str, setting: Setting, seeds: int | None = None) -> Plan:
    """The plan of a recipe; `name` is the folder of its results, `seeds` overrides the protocol's."""
    protocol = recipe.protocol
    report = setting.root / name
    options = protocol.small.evaluate if setting.small else protocol.evaluate
    steps = commands.import_articles(setting)
    steps.append(commands.compile_tasks(setting, recipe.compile_settings(setting.small)))
    models: list[Model] = []
    for run in recipe.runs:
        for model, its_steps in _models(recipe, run, setting, seeds or protocol.seeds):
            models.append(model)
            steps += [step for step in its_steps if step not in steps]
    named = [option for model in models for option in model.options()]
    made_by = [step for step in steps if step.command[0] in ("train", "export")]
    evaluation = report / "evaluation" / EVALUATED
    steps.append(commands.evaluate_models(setting, named, made_by, options, evaluation))
    bases = dict.fromkeys(_base(recipe, run, setting) for run in recipe.runs if run.base)
    return Plan(tuple(steps), tuple(models), options, evaluation, tuple(bases), report)


def _models(recipe: Recipe, run: Run, setting: Setting, seeds: int) -> Iterator[tuple[Model, list[Step]]]:
    """The one model of a run, or a model for each trained task, with the steps that make it."""
    if run.average_of is not None:
        averaged = next(one for one in recipe.runs if one.name == run.average_of)
        ((model, steps),) = _trained(recipe, averaged, setting, seeds)
        runs = [step for step in steps if step.command[0] == "train"]
        means = [
            commands.average_experts(setting, step, f"{run.name}-seed{seed}")
            for seed, step in enumerate(runs)
        ]
        sources = tuple(str(step.makes) for step in means)
        yield Model(run.name, run, sources, model.base, model.published_base), [*steps, *means]
        return
    yield from _trained(recipe, run, setting, seeds)


def _trained(recipe: Recipe, run: Run, setting: Setting, seeds: int) -> Iterator[tuple[Model, list[Step]]]:
    base = _base(recipe, run, setting)
    settings = recipe.train_settings(run, setting.small)
    untrained = base
    first: list[Step] = []
    if run.extend is not None:
        first = [commands.extend_base(setting, base, run.extend, run.name)]
        untrained = str(first[0].makes)
    tasks = [task.name for task in TaskFile.read(recipe.protocol.tasks).trainable()]
    for task in tasks if run.each_task else [None]:
        label = f"{run.name} {task}" if task else run.name
        own = {**settings, "routes": [task]} if task else settings
        runs = [
            commands.train_model(
                setting, untrained, {**own, "seed": seed}, f"{label.replace(' ', '-')}-seed{seed}"
            )
            for seed in range(seeds)
        ]
        sources = tuple(str(step.makes.parent / "model") for step in runs)
        published = str(run.base)
        named = published if LOCAL.get(published) == base else base
        yield Model(label, run, sources, named, published, task), [*first, *runs]


def _base(recipe: Recipe, run: Run, setting: Setting) -> str:
    return recipe.protocol.small.base if setting.small else str(run.base)

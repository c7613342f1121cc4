"""A recipe as a list of steps, and the models that the last of them evaluate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sentence_experts.reproduce.hub import LOCAL
from sentence_experts.reproduce.pairs import commands
from sentence_experts.reproduce.pairs.recipe import DOMAIN_IN_ROW, Baseline, Recipe, Run, Search
from sentence_experts.reproduce.pairs.setting import Setting
from sentence_experts.reproduce.step import Step


@dataclass(frozen=True)
class Model:
    """A model of the final comparison.

    Attributes:
        label: its name in our evaluation.
        row: its row in the published tables.
        sources: one folder a seed, or a single hub id, folder or `tfidf`.
        base: the pretrained model; `published_base` that of the paper.
        published_for: the paper's domain whose table has the row; None where every table has it.
        trained: by a step of the plan.
        pooling: how token vectors become one; None for what the model says.
    """

    label: str
    row: str
    sources: tuple[str, ...]
    base: str
    published_base: str
    published_for: str | None = None
    trained: bool = True
    pooling: str | None = None

    def options(self) -> list[str]:
        """How `evaluate` is told of it."""
        if len(self.sources) > 1:
            return [part for source in self.sources for part in ("--seeds", f"{self.label}={source}")]
        source = self.sources[0]
        pooling = ["--pooling", f"{self.label}={self.pooling}"] if self.pooling else []
        return [
            *([] if self.trained else ["--baseline"]),
            source,
            "--name",
            f"{self.label}={source}",
            *pooling,
        ]


@dataclass(frozen=True)
class Plan:
    """All steps of a recipe in order, and what comes of them.

    Attributes:
        evaluations: the published name of a set of pairs -> the evaluation.json that is made of it.
        left_out: baselines that only the hub has, at small scale.
        report: the folder of the comparison.
    """

    steps: tuple[Step, ...]
    models: tuple[Model, ...]
    evaluations: Mapping[str, Path]
    left_out: tuple[Baseline, ...]
    report: Path

    def pretrained(self) -> list[str]:
        """The hub ids, folders and named models that the steps begin with."""
        bases = [step.command[1] for step in self.steps if step.command[0] == "extend"]
        return list(dict.fromkeys([*bases, *(one.sources[0] for one in self.models if not one.trained)]))


def make_plan(recipe: Recipe, name: str, setting: Setting, seeds: int | None = None) -> Plan:
    """The plan of a recipe; `name` is the folder of its results, `seeds` overrides the protocol's."""
    protocol = recipe.protocol
    report = setting.root / name
    steps = [*commands.import_articles(setting), commands.compile_pairs(setting)]
    if recipe.search is not None:
        steps += _search_steps(recipe, recipe.search, setting)
    models: list[Model] = []
    for run in recipe.runs:
        for model, its_steps in _trained(recipe, run, setting, seeds or protocol.seeds):
            models.append(model)
            steps += its_steps
    left_out = [each for each in recipe.baselines if setting.small and each.model not in LOCAL]
    models += [_baseline(each, setting) for each in recipe.baselines if each not in left_out]
    evaluated = protocol.evaluate if models else {}
    evaluations = {key: report / key / "evaluation.json" for key in evaluated}
    named = [option for model in models for option in model.options()]
    runs = [step for step in steps if step.command[0] == "train"]
    for key, options in evaluated.items():
        steps.append(commands.evaluate_models(setting, named, runs, options, evaluations[key]))
    return Plan(tuple(steps), tuple(models), evaluations, tuple(left_out), report)


def _trained(recipe: Recipe, run: Run, setting: Setting, seeds: int) -> Iterator[tuple[Model, list[Step]]]:
    """The one model of a run, or a model for each domain, with the steps that make it."""
    base = recipe.protocol.small.base if setting.small else run.base
    settings = recipe.train_settings(run, setting.small)
    for domain, here in setting.domains.items() if run.experts == "each" else [(None, None)]:
        label, experts, published_for = run.row, list(setting.domains.values()), None
        if domain is not None and here is not None:
            named = DOMAIN_IN_ROW in run.row
            label = run.row.replace(DOMAIN_IN_ROW, here) if named else f"{run.row} {here}"
            experts, published_for = [here], None if named else domain
            settings = {**settings, "routes": here}
        untrained = commands.extend_base(setting, base, experts, run.extend, label.replace(" ", "-"))
        runs = [commands.train_model(setting, untrained, settings, seed) for seed in range(seeds)]
        sources = tuple(str(step.makes.parent / "model") for step in runs)
        row = run.row.replace(DOMAIN_IN_ROW, domain or "")
        same_base = LOCAL.get(run.base) == base
        named_base = run.base if same_base else base
        yield Model(label, row, sources, named_base, run.base, published_for), [untrained, *runs]


def _baseline(baseline: Baseline, setting: Setting) -> Model:
    source = LOCAL[baseline.model] if setting.small else baseline.model
    return Model(
        label=baseline.row,
        row=baseline.row,
        sources=(source,),
        base=baseline.model,
        published_base=baseline.model,
        trained=False,
        pooling=baseline.pooling,
    )


def _search_steps(recipe: Recipe, search: Search, setting: Setting) -> Sequence[Step]:
    here = setting.domains[search.domain]
    base = recipe.protocol.small.base if setting.small else search.base
    untrained = commands.extend_base(setting, base, [here], search.extend, f"search-{here}")
    settings = recipe.train_settings(None, setting.small) | {"routes": here}
    fixed = {key: value for key, value in settings.items() if key not in search.searched}
    trials = search.small_trials if setting.small else search.trials
    return [untrained, commands.tune_settings(setting, untrained, fixed, trials, search.fraction)]

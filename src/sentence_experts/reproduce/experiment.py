"""A recipe at one scale: its data, models and steps, and where a published figure is found in the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from sentence_experts.errors import UsageError
from sentence_experts.models.sources import NAME as PACKAGED
from sentence_experts.report.content import Table
from sentence_experts.reproduce.published import Published, PublishedFigure
from sentence_experts.reproduce.recipe import (
    DOMAIN,
    MTEB,
    Baseline,
    Recipe,
    ReproduceConfig,
    TrainedModel,
    without_benchmark,
)
from sentence_experts.reproduce.steps import Step

TFIDF = "tfidf"
# Published models that the small scale has without the hub.
LOCAL = {TFIDF: TFIDF, "sentence-transformers/all-MiniLM-L6-v2": PACKAGED}


@dataclass(frozen=True)
class Model:
    """A model of the final comparison.

    Attributes:
        label: its name in our evaluation.
        name: its row in the published tables.
        sources: one folder per seed, or a single hub id, folder or `tfidf`.
        base: the pretrained model; `published_base` that of the paper.
        route: the paper's domain or task that it was trained on alone; None for all.
        run: None for a model that is not trained.
        pooling: of a baseline.
    """

    label: str
    name: str
    sources: tuple[str, ...]
    base: str
    published_base: str
    route: str | None = None
    run: TrainedModel | None = None
    pooling: str | None = None


class OwnFigure(NamedTuple):
    """Our result for a published figure, also as a gain where that is one, with its 95% interval."""

    value: float | None = None
    gain: float | None = None
    interval: tuple[float, float] | None = None


class Experiment(ABC):
    """One recipe at one scale, ready to run. The kinds of recipes are its subclasses.

    Attributes:
        root: folder of all recipes of the same protocol and scale; they share data and models.
        report: the folder of the comparison.
        steps: in their order.
        models: that are measured.
        left_out: baselines that only the hub has, at small scale.
        evaluations: name of an evaluation -> the file of its results.
        pretrained: hub ids, folders and named models that the steps begin with.
        routes: the paper's domain or task -> the one here.
        folder: of the compiled pairs or tasks.
        differences: of the data from the paper's, in words.
        result: file of an evaluation's results.
    """

    result: ClassVar[str] = "tasks.json"

    def __init__(self, recipe: Recipe, name: str, config: ReproduceConfig, out: Path) -> None:
        """Plan a recipe; `name` is the folder of its results, `out` that of all recipes.

        Raises:
            UsageError: a setting that the recipe does not take, or a corpus that it needs.
            InputError: its data is not there.
        """
        if config.corpus is not None and recipe.protocol.kind != "pairs":
            raise UsageError("`corpus` is for recipes on pairs; this one is on tasks")
        self.recipe, self.small = recipe, config.scale == "small"
        self.trusts_code = config.trust_remote_code
        if recipe.needs_remote_code and not self.small and not self.trusts_code:
            raise UsageError(
                f"{recipe.model} comes with its own code, which would run here: read it, and then give "
                "`trust_remote_code=True`"
            )
        self.published = Published.read(recipe.protocol.published)
        self.root = out / config.scale / recipe.protocol.name
        self.report = self.root / name
        self.seeds = config.seeds or recipe.protocol.seeds
        self.steps: list[Step] = []
        self.models: list[Model] = []
        self.left_out: list[Baseline] = []
        self.evaluations: dict[str, Path] = {}
        self.pretrained: list[str] = []
        self.routes: dict[str, str] = {}
        self.folder = self.root
        self.differences: list[str] = []
        self._find_data(config.corpus)
        self._plan()

    @abstractmethod
    def _find_data(self, corpus: Path | None) -> None:
        """Plan the steps that compile the data, and note how the data differ from the paper's."""

    def extension(self, route: str | None) -> dict[str, Any]:
        """Return the arguments of `extend` besides the base, for one route or (None) all."""
        return {"tasks": self.folder}

    @abstractmethod
    def applies(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> bool:
        """Whether the figure belongs in the recipe's comparison."""

    @abstractmethod
    def models_of(self, figure: PublishedFigure) -> list[Model]:
        """Return the models of a figure's row or column; several if each was trained on one route."""

    @abstractmethod
    def ours(self, figure: PublishedFigure, models: list[Model], evaluations: Mapping[str, Any]) -> OwnFigure:
        """Return our result for a figure, from the results of the evaluations by their names."""

    def notes(self, evaluations: Mapping[str, Any]) -> list[str]:
        """Return more lines on differences from the paper."""
        return []

    def more_tables(self, evaluations: Mapping[str, Any]) -> Iterator[Table]:
        """Return tables that follow those of the published figures."""
        yield from ()

    def _plan(self) -> None:
        """Plan the steps for all models: search, extend, train, average, evaluate."""
        self._search()
        for run in self.recipe.runs:
            self.models += self._models(run)
        self.left_out = [each for each in self.recipe.baselines if self.small and each.model not in LOCAL]
        self.models += [self._baseline(each) for each in self.recipe.baselines if each not in self.left_out]
        if self.models:
            for name, settings in self.recipe.evaluate_settings(self.small).items():
                self._evaluate(name, settings)

    def _add(self, call: str, settings: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        """Plan a step, once."""
        step = Step(call, arguments, settings or {})
        if step not in self.steps:
            self.steps.append(step)

    def _evaluate(self, name: str, settings: Mapping[str, Any]) -> None:
        file = self.evaluations[name] = self.report / name / self.result
        runs = {model.label: list(model.sources) for model in self.models if model.run is not None}
        pooling = {model.label: model.pooling for model in self.models if model.pooling}
        self._add(
            "evaluate",
            {
                **without_benchmark(settings),
                **({"pooling": pooling} if pooling else {}),
                "cache": self.root / "cache",
            },
            models={label: own if len(own) > 1 else own[0] for label, own in runs.items()},
            baseline={model.label: model.sources[0] for model in self.models if model.run is None},
            data=settings.get(MTEB) or self.folder,
            out=file.parent,
        )

    def _models(self, run: TrainedModel) -> Iterator[Model]:
        """Return the model of a run, or one per domain or task."""
        if run.average_of is not None:
            averaged = next(each for each in self.recipe.runs if each.name == run.average_of)
            (model,) = self._models(averaged)
            means = [self._run_folder(run.name, seed) / "model" for seed in range(len(model.sources))]
            for source, mean in zip(model.sources, means, strict=True):
                self._add("export", {"average": True}, model=Path(source), out=mean)
            yield Model(run.name, run.name, tuple(map(str, means)), model.base, model.published_base, run=run)
            return
        for route, here in self.routes.items() if run.per_route else [(None, None)]:
            yield self._trained(run, route, here)

    def _trained(self, run: TrainedModel, route: str | None, here: str | None) -> Model:
        base, published_base = self._base(str(run.base)), str(run.base)
        settings = self.recipe.train_settings(run, self.small)
        label = run.name
        if here is not None:
            label = run.name.replace(DOMAIN, here) if DOMAIN in run.name else f"{run.name} {here}"
            settings = {**settings, "routes": [here]}
        model = base if run.extend is None else self._extend(base, here, run.extend, label)
        runs = [self._run_folder(label, seed) for seed in range(self.seeds)]
        for seed, out in enumerate(runs):
            self._add("train", {**settings, "seed": seed}, model=model, data=self.folder, out=out)
        return Model(
            label=label,
            name=run.name.replace(DOMAIN, route or ""),
            sources=tuple(str(out / "model") for out in runs),
            base=published_base if LOCAL.get(published_base) == base else base,
            published_base=published_base,
            route=None if DOMAIN in run.name else route,
            run=run,
        )

    def _baseline(self, baseline: Baseline) -> Model:
        published = baseline.model
        source = LOCAL[published] if self.small else published
        self._begin_with(source)
        return Model(baseline.name, baseline.name, (source,), published, published, pooling=baseline.pooling)

    def _search(self) -> None:
        search = self.recipe.search
        if search is None:
            return
        here = self.routes[search.domain]
        model = self._extend(self._base(search.base), here, search.extend, f"search-{here}")
        shared = {**self.recipe.train_settings(None, self.small), "routes": [here]}
        settings = {
            **{key: value for key, value in shared.items() if key not in search.searched},
            "trials": search.small_trials if self.small else search.trials,
            "fraction": search.fraction,
            "search_seed": 0,
        }
        self._add("tune", settings, model=model, data=self.folder, out=self.root / "search")

    def _base(self, published: str) -> str:
        return self._begin_with(self.recipe.protocol.small.base if self.small else published)

    def _begin_with(self, model: str) -> str:
        self.pretrained = list(dict.fromkeys([*self.pretrained, model]))
        return model

    def _extend(self, base: str, route: str | None, settings: Mapping[str, Any], label: str) -> str:
        out = self.root / "untrained" / label.replace(" ", "-")
        self._add("extend", settings, base=base, out=out, **self.extension(route))
        return str(out)

    def _run_folder(self, label: str, seed: int) -> Path:
        return self.root / "runs" / f"{label.replace(' ', '-')}-seed{seed}"


def changed_settings(what: str, published: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Return the settings that are not as published, as one line; none if all are."""
    changes = [
        f"{key} {_plain(value)} for {_plain(published.get(key, 'none'))}"
        for key, value in here.items()
        if _plain(value) != _plain(published.get(key))
    ]
    if changes:
        yield f"{what}: {'; '.join(changes)}"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value).replace(",", ", ")

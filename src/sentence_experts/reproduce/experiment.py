"""A recipe at one scale: its data, its models, the calls that make and measure them, and their figures."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import sentence_experts
from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.errors import InputError, UsageError
from sentence_experts.models.sources import NAME as PACKAGED
from sentence_experts.report.write import name_aside
from sentence_experts.reproduce.comparison import Compared, ReproductionResult
from sentence_experts.reproduce.published import Published, PublishedFigure
from sentence_experts.reproduce.recipe import Recipe, ReproduceConfig, TrainedModel

logger = logging.getLogger(__name__)

TFIDF, DOMAIN, MTEB = "tfidf", "{domain}", "mteb"
# Published models that the small scale has without the hub.
LOCAL = {TFIDF: TFIDF, "sentence-transformers/all-MiniLM-L6-v2": PACKAGED}
SMALL_TRIALS = 3  # number of trials of a search for settings


def evaluate(models: Mapping[str, Any], data: Any, out: Path, **settings: Any) -> None:
    """Evaluate models, label -> folder or the folders of its seeds, and write the report.

    An evaluation with other settings (more seeds) is replaced, as nothing is made from it; its report, which
    may have been edited, gets another name.
    """
    try:
        evaluation = sentence_experts.evaluate(models, data, out=out, **settings)
    except UsageError:
        files = [file for file in (Path(out, "report.html"), Path(out, "tasks.md")) if file.is_file()]
        before = {file: file.read_bytes() for file in files}
        evaluation = sentence_experts.evaluate(models, data, out=out, overwrite=True, **settings)
        for file, content in before.items():
            aside = name_aside(file)
            aside.write_bytes(content)
            logger.info(f"{file}: the report of the earlier settings is now {aside.name}")
    sentence_experts.write_report(evaluation, out, keep=True)


# Steps that are more than a call of a public function.
CALLS: dict[str, Callable[..., object]] = {"evaluate": evaluate, "simulate_corpus": simulate_corpus}


class Step(NamedTuple):
    """One call of a public function, which leaves a finished output of the same settings as it is."""

    call: str
    given: dict[str, Any]

    def run(self) -> None:
        """Call the function; UsageError if its output was made with other settings."""
        began = time.monotonic()
        logger.info(str(self))
        (CALLS.get(self.call) or getattr(sentence_experts, self.call))(**self.given)
        logger.info(f"{self.call}: took {time.monotonic() - began:.0f} s")

    def __str__(self) -> str:
        return f"{self.call}({', '.join(f'{name}={_plain(value)!r}' for name, value in self.given.items())})"


class Model(NamedTuple):
    """A model of the final comparison."""

    label: str  # its name in our evaluation
    name: str  # its row in the published tables
    sources: tuple[str, ...]  # one folder per seed, or a single hub id, folder or `tfidf`
    route: str | None = None  # the paper's domain or task that it was trained on alone
    run: TrainedModel | None = None  # None for a model that is not trained
    pooling: str | None = None
    other_base: bool = False  # whether its base is another one than the paper's


class Found(NamedTuple):
    """Our figure for a published one; without a model it was not run."""

    model: Model | None = None
    value: float | None = None
    interval: tuple[float, float] | None = None
    gain: float | None = None


class Experiment(ABC):
    """One recipe at one scale, ready to run. The kinds of recipes are its subclasses."""

    result: ClassVar[str] = "tasks.json"  # file of an evaluation's results

    def __init__(self, recipe: Recipe, name: str, config: ReproduceConfig, out: Path) -> None:
        """Plan a recipe; `name` is the folder of its results, `out` the folder of all recipes.

        Raises:
            UsageError: a setting that the recipe does not take, or a corpus that it needs.
            InputError: its data is not there, or it names a model or domain that is not there.
        """
        self.recipe, self.protocol = recipe, recipe.protocol
        self.small, self.trusts_code = config.scale == "small", config.trust_remote_code
        if config.corpus is not None and self.protocol.kind != "pairs":
            raise UsageError("`corpus` is for recipes on pairs; this one is on tasks")
        if recipe.needs_remote_code and not self.small and not self.trusts_code:
            raise UsageError(
                f"{recipe.model} comes with its own code, which would run here: read it, and then give "
                "`trust_remote_code=True`"
            )
        self.published = Published.read(self.protocol.published)
        # Recipes of the same protocol and scale share this folder with data and models.
        self.root = self.folder = out / config.scale / self.protocol.name
        self.report = self.root / name
        self.seeds = config.seeds or self.protocol.seeds
        self.steps: list[Step] = []
        self.models: list[Model] = []
        self.left_out: list[str] = []  # rows of models that only the hub has, at small scale
        self.evaluations: dict[str, Path] = {}  # name -> file of the results
        self.routes: dict[str, str] = {}  # the paper's domain or task -> the one here
        self.differences: list[str] = []  # differences from the paper's data and settings
        self.find_data(config.corpus)
        self.plan()
        if not self.protocol.faithful:
            self.differences.append("protocol: not the published one; see the choices")
        if self.left_out:
            self.differences.append(f"not run, since only the hub has them: {', '.join(self.left_out)}")

    @abstractmethod
    def find_data(self, corpus: Path | None) -> None:
        """Plan the steps that compile the data, and note how the data differ from the paper's."""

    @abstractmethod
    def find(self, figure: PublishedFigure, evaluations: Mapping[str, Any]) -> Found | None:
        """Return our figure from the results of the evaluations by name; None if the recipe has none."""

    def extension(self, route: str | None) -> dict[str, Any]:
        """Return the arguments of `extend` besides the base, for one route or (None) all."""
        return {"tasks": self.folder}

    def notes(self, evaluations: Mapping[str, Any]) -> list[str]:
        """Return more lines on differences from the paper."""
        return []

    def compare(self, evaluations: Mapping[str, Any]) -> ReproductionResult:
        """Set the results of the finished evaluations, by name, beside the published figures."""
        figures = []
        for figure in self.published.figures():
            if (found := self.find(figure, evaluations)) is not None:
                model, value, interval, gain = found
                here = self.routes.get(str(figure.domain), figure.domain)
                different = {"not run": model is None} if model is None else {
                    "data": True,
                    "base": model.other_base,
                    "scale": self.small and (model.run is not None or bool(self.recipe.model)),
                    "protocol": not self.protocol.faithful,
                }  # fmt: skip
                differs = tuple(mark for mark, applies in different.items() if applies)
                figures.append(Compared(figure, value, gain, interval, here, differs))
        return ReproductionResult(
            title=self.recipe.title,
            paper=self.published.paper,
            scale="small" if self.small else "full",
            figures=tuple(figures),
            differences=(*self.differences, *self.notes(evaluations)),
            choices=tuple(f"{each.what} ({each.kind}). Here: {each.here}" for each in self.protocol.choices),
            notes=self.published.notes,
        )

    def plan(self) -> None:
        """Plan the steps for all models: search, extend, train, average, evaluate."""
        self._search()
        for run in self.recipe.runs:
            if run.average_of is not None:
                self.models.append(self._average(run))
            else:
                for route, here in self.routes.items() if run.per_route else [(None, None)]:
                    self.models.append(self._train(run, route, here))
        for each in self.recipe.baselines:
            if self.small and each.model not in LOCAL:
                self.left_out.append(each.name)
            else:
                source = LOCAL[each.model] if self.small else each.model
                self.models.append(Model(each.name, each.name, (source,), pooling=each.pooling))
        for name, settings in self.evaluate_settings().items() if self.models else ():
            self._evaluate(name, settings)

    def add(self, call: str, settings: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        """Plan a step, once."""
        step = Step(call, {**arguments, **(settings or {})})
        if step not in self.steps:
            self.steps.append(step)

    def named(self, key: str, name: str, known: Mapping[str, Any]) -> Any:
        """Return the object that a recipe names; InputError if it is not there."""
        if name not in known:
            file = self.protocol.file
            raise InputError(f"{file} or its recipe: {key}: {name!r} is none of {', '.join(known)}")
        return known[name]

    def note_changes(self, what: str, published: Mapping[str, Any], here: Mapping[str, Any]) -> None:
        """Note the settings that are not as published, in one line."""

        def text(value: Any) -> str:
            return ", ".join(map(str, value if isinstance(value, list | tuple) else str(value).split(",")))

        changes = "; ".join(
            f"{key} {text(value)} for {text(published.get(key, 'none'))}"
            for key, value in here.items()
            if text(value) != text(published.get(key))
        )
        if changes and f"{what}: {changes}" not in self.differences:
            self.differences.append(f"{what}: {changes}")

    def evaluate_settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings of each evaluation by its name, `mteb` among them."""
        reduced = self.protocol.small.evaluate if self.small else None
        return self.protocol.evaluate if reduced is None else reduced

    def _train(self, run: TrainedModel, route: str | None, here: str | None) -> Model:
        published = str(run.base)
        base = self.protocol.small.base if self.small else published
        other_base = base not in (published, LOCAL.get(published))
        if other_base:
            self.differences += {f"base: {base} for {published}"} - {*self.differences}
        settings = self.recipe.train_settings(run, self.small)
        self.note_changes("training", self.recipe.train_settings(run, False), settings)
        label = run.name
        if here is not None:
            label = run.name.replace(DOMAIN, here) if DOMAIN in run.name else f"{run.name} {here}"
        model = base if run.extend is None else self._extend(base, here, run.extend, label)
        runs = [self._run_folder(label, seed) for seed in range(self.seeds)]
        alone = {} if here is None else {"routes": [here]}
        for seed, out in enumerate(runs):
            self.add("train", {**settings, **alone, "seed": seed}, model=model, data=self.folder, out=out)
        name, alone_on = run.name.replace(DOMAIN, route or ""), None if DOMAIN in run.name else route
        sources = tuple(str(out / "model") for out in runs)
        return Model(label, name, sources, alone_on, run, other_base=other_base)

    def _average(self, run: TrainedModel) -> Model:
        """Plan the mean of the experts of a model that is planned already."""
        trained = {each.run.name: each for each in self.models if each.run}
        model = self.named(f"runs.{run.name}.average_of", str(run.average_of), trained)
        means = [self._run_folder(run.name, seed) / "model" for seed in range(len(model.sources))]
        for source, mean in zip(model.sources, means, strict=True):
            self.add("export", {"average": True}, model=Path(source), out=mean)
        return Model(run.name, run.name, tuple(map(str, means)), run=run, other_base=model.other_base)

    def _evaluate(self, name: str, settings: Mapping[str, Any]) -> None:
        file = self.evaluations[name] = self.report / name / self.result
        runs = {model.label: [*model.sources] for model in self.models if model.run is not None}
        pooling = {model.label: model.pooling for model in self.models if model.pooling}
        given = {key: value for key, value in settings.items() if key != MTEB}
        self.add(
            "evaluate",
            given | ({"pooling": pooling} if pooling else {}) | {"cache": self.root / "cache"},
            models={label: own if len(own) > 1 else own[0] for label, own in runs.items()},
            baseline={model.label: model.sources[0] for model in self.models if model.run is None},
            data=settings.get(MTEB) or self.folder,
            out=file.parent,
        )

    def _search(self) -> None:
        search = self.recipe.search
        if search is None:
            return
        here = self.named("search.domain", search.domain, self.routes)
        base = self.protocol.small.base if self.small else search.base
        model = self._extend(base, here, search.extend, f"search-{here}")
        shared = self.recipe.train_settings(None, self.small)
        settings = {key: value for key, value in shared.items() if key not in search.searched}
        trials = SMALL_TRIALS if self.small else search.trials
        settings |= {"routes": [here], "trials": trials, "fraction": search.fraction}
        self.add("tune", settings, model=model, data=self.folder, out=self.root / "search")

    def _extend(self, base: str, route: str | None, settings: Mapping[str, Any], label: str) -> str:
        out = self.root / "untrained" / label.replace(" ", "-")
        self.add("extend", settings, base=base, out=out, **self.extension(route))
        return str(out)

    def _run_folder(self, label: str, seed: int) -> Path:
        return self.root / "runs" / f"{label.replace(' ', '-')}-seed{seed}"


def _plain(value: Any) -> Any:
    """Return the value with paths as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value

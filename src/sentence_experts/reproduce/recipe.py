"""A recipe: rows or columns of published tables as settings of this package.

A recipe names its models; its protocol holds what the recipes of one paper share (data, training, tests).
Every group of settings is checked against the `Config` of the function that takes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sentence_experts.config import Config
from sentence_experts.errors import InputError
from sentence_experts.evaluation.config import AnalyseConfig, EvaluateConfig
from sentence_experts.models.surgery.config import ExtendConfig
from sentence_experts.moee.config import MoeeConfig
from sentence_experts.moee.prompts import NO_PROMPT, PROMPTS
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.reproduce.published import Published
from sentence_experts.reproduce.reading import Strict, checked
from sentence_experts.tasks.config import TasksConfig
from sentence_experts.tasks.task_file import TaskFile
from sentence_experts.training.config import TrainConfig
from sentence_experts.yaml_files import read_settings

DOMAIN = "{domain}"
MTEB = "mteb"
TRUST = "trust_remote_code"
Settings = dict[str, Any]
# What a protocol of each kind must have.
NEEDED = {
    "pairs": ("domains", "plan", "queries", "pairs", "train", "evaluate"),
    "tasks": ("tasks", "train", "evaluate"),
    "language_models": ("prompts", "evaluate"),
    "analysis": ("analyse",),
}


class Choice(Strict):
    """Something in a published protocol that leaks, or that the paper leaves open, and what was done here."""

    what: str
    kind: Literal["leaks", "open", "differs"]
    here: str


class Query(Strict):
    """The search of one domain's papers in PubMed Central."""

    mesh: str = Field(description="the search term")
    years: tuple[int, int]
    min_citations: int = 1

    def text(self) -> str:
        """The query as typed into PubMed Central's search."""
        first, last = self.years
        return f"{self.mesh} AND open access[filter] AND has abstract[filter] AND {first}:{last}[pdat]"


class Run(Strict):
    """One trained model, or one per domain or task.

    Attributes:
        name: of the model; its row in the published tables, with "{domain}" for the domain of its own.
        columns: published table -> the model's column, in tables whose columns are models.
        base: hub id or folder of the pretrained encoder.
        extend: settings of `extend`; None: the base is trained as it is.
        train: over the protocol's training settings.
        per_route: one model per domain or task, trained on that alone.
        average_of: the run whose experts are averaged to give this model, which is then not trained.
    """

    name: str
    columns: dict[str, str] = Field(default_factory=dict)
    base: str | None = None
    extend: Settings | None = None
    train: Settings = Field(default_factory=dict)
    per_route: bool = False
    average_of: str | None = None


class Baseline(Strict):
    """A pretrained model that is measured as it is.

    Attributes:
        model: hub id, or tfidf.
        pooling: how token vectors become one; None: as the model says, else mean.
        note: what the paper leaves open about it.
    """

    name: str
    model: str
    pooling: Literal["mean", "last", "cls"] | None = None
    note: str = ""


class Search(Strict):
    """A search for training settings.

    Attributes:
        domain: the only domain whose pairs are used.
        searched: the settings that are searched; the protocol's values of them are left out.
        fraction: fraction of the training pairs that is sampled.
    """

    base: str
    domain: str
    extend: Settings = Field(default_factory=dict)
    searched: tuple[str, ...]
    trials: int = Field(20, ge=1)
    small_trials: int = Field(3, ge=1)
    fraction: float = Field(0.1, gt=0, le=1)


class SmallScale(Strict):
    """What changes at small scale; everything else stays as published.

    Attributes:
        base: in place of every pretrained model.
        domains: the paper's domain -> the one of the articles at hand.
        tasks, simulated: task files on the data at hand, and on simulated articles.
        pairs, compile, train, read, evaluate: over the settings of the full scale.
    """

    base: str = "minilm"
    domains: dict[str, str] = Field(default_factory=dict)
    tasks: str | None = None
    simulated: str | None = None
    pairs: Settings = Field(default_factory=dict)
    compile: Settings = Field(default_factory=dict)
    train: Settings = Field(default_factory=dict)
    read: Settings = Field(default_factory=dict)
    evaluate: dict[str, Settings] | None = None


class Protocol(Strict):
    """What the recipes of one paper share.

    Attributes:
        kind: what models are trained or measured on; see `reproduce.kinds`.
        file: where it was read.
        published: the paper's figures.
        domains, plan, queries, pairs: (pairs) domain rules, a plan for `fetch_corpus`, the paper's queries,
            settings of `compile_pairs`.
        tasks, compile: (tasks) the task file, settings of `compile_tasks`.
        prompts, read: (language models) the prompts, settings of the embedder.
        analyse: (analysis of a language model) settings of `analyse`.
        evaluate: name of an evaluation -> settings of `evaluate`; `mteb` names a benchmark.
        seeds: number of training runs per model.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    kind: Literal["pairs", "tasks", "language_models", "analysis"]
    file: Path
    faithful: bool = True
    published: Path
    domains: Path | None = None
    plan: Path | None = None
    queries: dict[str, Query] = Field(default_factory=dict)
    pairs: Settings = Field(default_factory=dict)
    tasks: Path | None = None
    compile: Settings = Field(default_factory=dict)
    prompts: tuple[str, ...] = ()
    read: Settings = Field(default_factory=dict)
    train: Settings = Field(default_factory=dict)
    analyse: Settings = Field(default_factory=dict)
    evaluate: dict[str, Settings] = Field(default_factory=dict)
    seeds: int = Field(1, ge=1)
    choices: tuple[Choice, ...] = ()
    small: SmallScale

    def small_file(self, real: bool) -> Path:
        """The task file of the small scale."""
        return self.file.parent / str(self.small.tasks if real else self.small.simulated)


class Recipe(Strict):
    """One experiment.

    Attributes:
        about: what it is.
        tables: the published tables that its models are in.
        beside: recipes whose models belong in the same tables; they are run too.
        runs: the models of `beside`, then its own.
        model: (language models) the paper's name of the model.
        needs_remote_code: the model comes with code of its own, which only the user may allow.
        train, small_train, read: over the protocol's, for every run.
    """

    title: str
    about: str
    tables: tuple[str, ...] = ()
    protocol: Protocol
    beside: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    search: Search | None = None
    model: str | None = None
    needs_remote_code: bool = False
    train: Settings = Field(default_factory=dict)
    small_train: Settings = Field(default_factory=dict)
    read: Settings = Field(default_factory=dict)

    def train_settings(self, run: Run | None, small: bool) -> Settings:
        """A run's training settings, later ones over earlier ones; without a run those that runs share."""
        reduced = {**self.protocol.small.train, **self.small_train} if small else {}
        return {**self.protocol.train, **self.train, **(run.train if run else {}), **reduced}

    def compile_settings(self, small: bool) -> Settings:
        """The settings of `compile_tasks`."""
        return {**self.protocol.compile, **(self.protocol.small.compile if small else {})}

    def read_settings(self, small: bool) -> Settings:
        """How a language model is read; at small scale the protocol's reduced settings come last."""
        return {**self.protocol.read, **self.read, **(self.protocol.small.read if small else {})}

    def evaluate_settings(self, small: bool) -> dict[str, Settings]:
        """Name of an evaluation -> its settings, `mteb` among them."""
        reduced = self.protocol.small.evaluate if small else None
        return self.protocol.evaluate if reduced is None else reduced


def read_recipe(path: Path) -> Recipe:
    """Read a recipe with its protocol, published figures and the recipes beside it.

    Raises:
        InputError: a file is missing, or a key or value is not known; the message names both.
    """
    recipe = _read(path)
    others = [run for name in recipe.beside for run in _read(path.parent / name).runs]
    runs = {run.name: run for run in (*others, *recipe.runs)}
    recipe = recipe.model_copy(update={"runs": tuple(runs.values())})
    published = Published.read(recipe.protocol.published)
    _check_protocol(recipe.protocol, published)
    for inside, config, settings in _groups_of_recipe(recipe):
        _check_group(config, settings, path, inside)
    _check_names(recipe, published, path)
    return recipe


def _read(path: Path) -> Recipe:
    content = read_settings(path)
    protocol, source, inside = content.pop("protocol", None), path, "protocol"
    if isinstance(protocol, str):
        source, inside = path.parent / protocol, ""
        protocol = read_settings(source)
    if not isinstance(protocol, dict):
        raise InputError(f"{path}: protocol: name a protocol's file, or write its keys here")
    for key in ("published", "domains", "plan", "tasks"):
        if key in protocol:
            protocol[key] = os.path.normpath(source.parent / str(protocol[key]))
    whole = checked(Protocol, {**protocol, "file": source}, source, inside)
    return checked(Recipe, {**content, "protocol": whole}, path)


Group = tuple[str, type[Config], Mapping[str, Any]]


def _groups_of_protocol(protocol: Protocol) -> Iterator[Group]:
    yield "analyse", AnalyseConfig, protocol.analyse
    for inside, part in (("", protocol), ("small.", protocol.small)):
        yield f"{inside}pairs", PairsConfig, part.pairs
        yield f"{inside}compile", TasksConfig, part.compile
        yield f"{inside}train", TrainConfig, part.train
        yield f"{inside}read", MoeeConfig, part.read
        for name, settings in (part.evaluate or {}).items():
            yield f"{inside}evaluate.{name}", EvaluateConfig, without_benchmark(settings)


def _groups_of_recipe(recipe: Recipe) -> Iterator[Group]:
    yield "read", MoeeConfig, recipe.read
    if recipe.search is not None:
        yield "search.extend", ExtendConfig, recipe.search.extend
    for run in (*recipe.runs, None):
        inside = f"runs.{run.name}." if run else ""
        for small in (False, True):
            yield f"{inside}train", TrainConfig, recipe.train_settings(run, small)
        if run is not None:
            yield f"{inside}extend", ExtendConfig, run.extend or {}


def _check_group(config: type[Config], settings: Mapping[str, Any], path: Path, inside: str) -> None:
    if TRUST in settings:
        raise InputError(
            f"{path}: {inside}.{TRUST}: only the user can allow this; write `needs_remote_code: true`"
        )
    checked(config, settings, path, inside)


def without_benchmark(settings: Mapping[str, Any]) -> Settings:
    """The settings of `evaluate`; `mteb` is its data."""
    return {key: value for key, value in settings.items() if key != MTEB}


def _check_protocol(protocol: Protocol, published: Published) -> None:
    source = protocol.file
    for key in NEEDED[protocol.kind]:
        if not getattr(protocol, key):
            raise InputError(f"{source}: {key}: is missing, for recipes of kind {protocol.kind}")
    for inside, config, settings in _groups_of_protocol(protocol):
        _check_group(config, settings, source, inside)
    if protocol.kind == "pairs":
        domains = set(DomainRules.read(Path(str(protocol.domains))).domains)
        for key, names in (("queries", protocol.queries), ("small.domains", protocol.small.domains)):
            if set(names) != domains:
                known = ", ".join(sorted(domains))
                raise InputError(f"{source}: {key}: {', '.join(names)}; {protocol.domains} has {known}")
    if protocol.kind == "tasks":
        for file in (Path(str(protocol.tasks)), protocol.small_file(True), protocol.small_file(False)):
            TaskFile.read(file)
    unknown = [prompt for prompt in protocol.prompts if prompt not in (*PROMPTS, NO_PROMPT)]
    if unknown:
        raise InputError(f"{source}: prompts: {unknown[0]!r} is not one of the paper's prompts")


def _check_names(recipe: Recipe, published: Published, path: Path) -> None:
    """Check names of models, tables, columns and domains against each other."""
    if recipe.protocol.kind in ("language_models", "analysis"):
        if recipe.model not in published.models:
            raise InputError(f"{path}: model: {recipe.model!r} is none of {', '.join(published.models)}")
        return
    if not (recipe.runs or recipe.baselines or recipe.search):
        raise InputError(f"{path}: runs: a recipe has at least one of runs, baselines and search")
    columns = published.columns()
    for table in recipe.tables:
        if table not in columns:
            raise InputError(f"{path}: tables: {table!r} is none of {', '.join(columns)}")
    names = [run.name for run in recipe.runs]
    for run in recipe.runs:
        for table, column in run.columns.items():
            if column not in columns.get(table, ()):
                raise InputError(f"{path}: runs.{run.name}.columns: {table} has no column {column!r}")
        if (run.base is None) == (run.average_of is None):
            raise InputError(f"{path}: runs.{run.name}: give one of base and average_of")
        if run.average_of not in (None, *names):
            raise InputError(
                f"{path}: runs.{run.name}.average_of: {run.average_of!r} is none of {', '.join(names)}"
            )
    domains = recipe.protocol.queries
    if recipe.search and recipe.search.domain not in domains:
        raise InputError(f"{path}: search.domain: {recipe.search.domain!r} is none of {', '.join(domains)}")

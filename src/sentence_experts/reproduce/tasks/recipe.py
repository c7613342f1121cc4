"""A recipe on tasks: the models of one or several columns of a paper's tables, as settings of this package.

A recipe names its runs; its protocol holds what the recipes of one paper share (tasks, training, evaluation).
Every group of settings is checked against the class that will take it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sentence_experts.errors import InputError
from sentence_experts.reproduce.protocol import Choice, Strict
from sentence_experts.reproduce.reading import RecipeFile, checked
from sentence_experts.reproduce.tasks.published import Published
from sentence_experts.tasks.config import TasksConfig
from sentence_experts.tasks.task_file import TaskFile
from sentence_experts.training.config import TrainConfig


class ExtendOptions(Strict):
    """How a base becomes the model to train; the flags of `extend --tasks` of the same names."""

    layers: str | None = None
    router: Literal["route", "token"] | None = None
    top_k: int | None = Field(None, ge=1)
    expert_norms: bool | None = None
    pooling: Literal["mean", "cls"] | None = None
    normalize: bool | None = None


class EvaluateOptions(Strict):
    """What is measured; the flags of `evaluate` of the same names."""

    mteb: str | None = Field(default=None, description="a benchmark or group; None: the tasks' test sets")
    bootstrap: int | None = Field(default=None, ge=0)


class Run(Strict):
    """One model, or one for each trained task.

    Attributes:
        name: what we call it.
        columns: published table -> the column that is this model's.
        base: hub id or folder of the pretrained encoder.
        extend: how it is extended; None: it is trained as it is.
        train: over the protocol's training settings.
        each_task: a model for each trained task, which sees that task alone and is measured on it, and on the
            tasks that are read as it.
        average_of: the run whose experts are averaged to give this one, which is then not trained.
    """

    name: str
    columns: dict[str, str]
    base: str | None = None
    extend: ExtendOptions | None = None
    train: dict[str, Any] = Field(default_factory=dict)
    each_task: bool = False
    average_of: str | None = None


class Small(Strict):
    """What changes at small scale; everything else stays as published.

    Attributes:
        tasks: the task file on real data; `simulated` the one that needs none.
        compile, train, evaluate: over the settings of the full scale.
    """

    tasks: str
    simulated: str
    base: str = "minilm"
    compile: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    evaluate: EvaluateOptions = EvaluateOptions()


class Protocol(Strict):
    """What the recipes of one paper share.

    Attributes:
        file: where it was read.
        published: the paper's figures; tasks: the task file. Both beside the protocol's file.
        compile: settings of `tasks`.
        seeds: how many training runs with different seeds each model gets.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    file: Path
    faithful: bool
    published: Path
    tasks: Path
    compile: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any]
    evaluate: EvaluateOptions
    seeds: int = Field(1, ge=1)
    choices: tuple[Choice, ...] = ()
    small: Small

    def small_file(self, real: bool) -> Path:
        """The task file of the small scale."""
        return self.file.parent / (self.small.tasks if real else self.small.simulated)


class Recipe(Strict):
    """One experiment. `about` says what it is, `tables` which published tables hold its columns.

    Attributes:
        beside: recipes whose models belong into the same tables; they are run too.
        runs: those of `beside`, then its own.
    """

    title: str
    about: str
    tables: tuple[str, ...]
    protocol: Protocol
    beside: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()

    def train_settings(self, run: Run, small: bool) -> dict[str, Any]:
        """A run's training settings, later ones over earlier ones."""
        reduced = self.protocol.small.train if small else {}
        return {**self.protocol.train, **run.train, **reduced}

    def compile_settings(self, small: bool) -> dict[str, Any]:
        """The settings of the verb `tasks`."""
        return {**self.protocol.compile, **(self.protocol.small.compile if small else {})}


def read_recipe(path: Path) -> Recipe:
    """Read a recipe with its protocol and the recipes beside it.

    Raises:
        InputError: a file is missing, or a key or value is not known; the message names both.
    """
    recipe = _read(path)
    others = [run for name in recipe.beside for run in _read(path.parent / name).runs]
    runs = {run.name: run for run in (*others, *recipe.runs)}
    recipe = recipe.model_copy(update={"runs": tuple(runs.values())})
    _check_runs(recipe, path)
    return recipe


def _read(path: Path) -> Recipe:
    file = RecipeFile.read(path)
    protocol = checked(Protocol, file.with_paths("published", "tasks"), file.source, file.inside)
    _check_protocol(protocol)
    return checked(Recipe, {**file.content, "protocol": protocol}, path)


def _check_protocol(protocol: Protocol) -> None:
    """Every group of settings against the class that takes it, and every file that is named."""
    source = protocol.file
    small = protocol.small
    for inside, settings in (("compile", protocol.compile), ("small.compile", small.compile)):
        checked(TasksConfig, settings, source, inside)
    for inside, settings in (("train", protocol.train), ("small.train", small.train)):
        checked(TrainConfig, settings, source, inside)
    Published.read(protocol.published)
    for file in (protocol.tasks, protocol.small_file(True), protocol.small_file(False)):
        TaskFile.read(file)


def _check_runs(recipe: Recipe, path: Path) -> None:
    published = {table.table: table.columns for table in Published.read(recipe.protocol.published).tables}
    names = [run.name for run in recipe.runs]
    if not names:
        raise InputError(f"{path}: runs: a recipe has at least one run, of its own or beside it")
    for run in recipe.runs:
        inside = f"runs.{run.name}"
        for small in (False, True):
            checked(TrainConfig, recipe.train_settings(run, small), path, f"{inside}.train")
        for table, column in run.columns.items():
            if column not in published.get(table, ()):
                raise InputError(f"{path}: {inside}.columns: {table} has no column {column!r}")
        if (run.base is None) == (run.average_of is None):
            raise InputError(f"{path}: {inside}: give one of base and average_of")
        if run.average_of is not None and run.average_of not in names:
            raise InputError(f"{path}: {inside}.average_of: {run.average_of!r} is none of {', '.join(names)}")
    for table in recipe.tables:
        if table not in published:
            raise InputError(f"{path}: tables: {table!r} is none of {', '.join(published)}")

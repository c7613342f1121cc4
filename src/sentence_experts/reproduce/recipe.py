"""A recipe: rows or columns of published tables as settings of this package.

A recipe names its models; its protocol holds what the recipes of one paper share (data, training, tests).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from sentence_experts.config import Config, TrustRemoteCode, check_content
from sentence_experts.errors import InputError
from sentence_experts.yaml_files import read_settings

Settings = dict[str, Any]


class Choice(BaseModel, extra="forbid", frozen=True):
    """Something in a published protocol that leaks, or that the paper leaves open, and the choice here."""

    what: str
    kind: Literal["leaks", "open", "differs"]
    here: str


class TrainedModel(BaseModel, extra="forbid", frozen=True):
    """One trained model, or one per domain or task."""

    name: str  # its row in the published tables, with "{domain}" for the domain that it is trained on
    columns: dict[str, str] = {}  # table -> the model's column, in tables whose columns are models
    base: str | None = None  # hub id or folder of the pretrained encoder
    extend: Settings | None = None  # None: the base is trained as it is
    train: Settings = {}  # settings in place of the protocol's
    per_route: bool = False  # one model per domain or task, trained on that alone
    average_of: str | None = None  # the run whose experts are averaged to give this model

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        if (self.base is None) == (self.average_of is None):
            raise ValueError("give one of base and average_of")
        return self


class Baseline(BaseModel, extra="forbid", frozen=True):
    """A pretrained model (hub id, or tfidf) that is measured as it is; `note` is on an open choice."""

    name: str
    model: str
    pooling: Literal["mean", "last", "cls"] | None = None
    note: str = ""


class Search(BaseModel, extra="forbid", frozen=True):
    """A search for training settings on a fraction of one domain's pairs; `searched` are left open."""

    base: str
    domain: str
    extend: Settings = {}
    searched: tuple[str, ...]
    trials: int
    fraction: float


class SmallScale(BaseModel, extra="forbid", frozen=True):
    """The changes at small scale; everything else stays as published."""

    base: str = "minilm"  # base of every pretrained model; "drawn": a language model with random weights
    domains: dict[str, str] = {}  # the paper's domain -> the one of the articles at hand
    tasks: str = ""  # task file on the data at hand
    simulated: str = ""  # task file on simulated articles
    # Settings in place of those at full scale.
    pairs: Settings = {}
    compile: Settings = {}
    train: Settings = {}
    read: Settings = {}
    evaluate: dict[str, Settings] | None = None


class Protocol(BaseModel, extra="forbid", frozen=True):
    """The settings that the recipes of one paper share."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    kind: Literal["pairs", "tasks", "language_models", "analysis"]
    file: Path  # the file that it was read from
    faithful: bool = True  # whether it is the published one
    published: Path  # the paper's figures
    domains: Path = Path()  # domain rules
    plan: Path = Path()  # plan of `fetch_corpus`
    pairs: Settings = {}  # settings of `compile_pairs`
    tasks: Path = Path()  # task file
    compile: Settings = {}  # settings of `compile_tasks`
    prompts: tuple[str, ...] = ()
    read: Settings = {}  # settings of the embedder of a language model
    train: Settings = {}
    analyse: Settings = {}
    evaluate: dict[str, Settings] = {}  # name -> settings of `evaluate`; `mteb` names a benchmark
    seeds: int = Field(1, ge=1)  # number of training runs per model
    choices: tuple[Choice, ...] = ()
    small: SmallScale


class Recipe(BaseModel, extra="forbid", frozen=True):
    """One experiment."""

    title: str
    about: str
    tables: tuple[str, ...] = ()  # tables that its models are in
    protocol: Protocol
    beside: tuple[str, ...] = ()  # recipes whose models belong in the same tables; they are run too
    runs: tuple[TrainedModel, ...] = ()  # the models of `beside`, then its own
    baselines: tuple[Baseline, ...] = ()
    search: Search | None = None
    model: str = ""  # the paper's name of a language model
    # Task of mteb, or TASK.DATASET at small scale -> instruction in front of a language model's texts.
    instructions: dict[str, str] = {}
    needs_remote_code: bool = False  # whether it comes with its own code, which only the user may allow
    small_train: Settings = {}  # settings in place of the protocol's, for every run
    read: Settings = {}  # settings in place of the protocol's

    def train_settings(self, run: TrainedModel | None, small: bool) -> Settings:
        """Return a run's training settings, later ones over earlier ones; None: those that runs share."""
        reduced = {**self.protocol.small.train, **self.small_train} if small else {}
        return {**self.protocol.train, **(run.train if run else {}), **reduced}


class ReproduceConfig(Config):
    """Settings of `reproduce_recipe`."""

    scale: Literal["small", "full"] = Field(
        "small",
        description="small: minutes on two cores, without a hub, on the articles of `demo`; full: as "
        "published, on your corpus or on hub datasets",
    )
    corpus: Path | None = Field(
        None, description="Corpus folder with the articles of the paper; for recipes on pairs at full scale"
    )
    seeds: int | None = Field(
        None, ge=1, description="Number of training runs per model. Default: the recipe's"
    )
    trust_remote_code: TrustRemoteCode = False


def read_recipe(path: Path) -> Recipe:
    """Read a recipe with its protocol and the recipes beside it.

    Raises:
        InputError: a file is missing, or a key or value is not known; the message names both.
    """
    recipe = _read(path)
    others = [run for name in recipe.beside for run in _read(path.parent / name).runs]
    runs = {run.name: run for run in (*others, *recipe.runs)}
    return recipe.model_copy(update={"runs": tuple(runs.values())})


def _read(path: Path) -> Recipe:
    content = read_settings(path)
    protocol, source = content.pop("protocol", None), path
    if isinstance(protocol, str):
        source = path.parent / protocol
        protocol = read_settings(source)
    if not isinstance(protocol, dict):
        raise InputError(f"{path}: protocol: name a protocol's file, or write its keys here")
    for key in ("published", "domains", "plan", "tasks"):
        if key in protocol:
            protocol[key] = os.path.normpath(source.parent / str(protocol[key]))
    whole = check_content(Protocol, {**protocol, "file": source}, source)
    return check_content(Recipe, {**content, "protocol": whole}, path)

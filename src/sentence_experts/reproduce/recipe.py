"""A recipe: rows or columns of published tables as settings of this package.

A recipe names its models; its protocol holds what the recipes of one paper share (data, training, tests).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sentence_experts.config import Config, TrustRemoteCode
from sentence_experts.reproduce.published import Strict

DOMAIN = "{domain}"
MTEB = "mteb"
Settings = dict[str, Any]


class Choice(Strict):
    """Something in a published protocol that leaks, or that the paper leaves open, and the choice here."""

    what: str
    kind: Literal["leaks", "open", "differs"]
    here: str


class Query(Strict):
    """The search of one domain's papers in PubMed Central."""

    mesh: str = Field(description="the search term")
    years: tuple[int, int]
    min_citations: int = 1

    def text(self) -> str:
        """Return the query as typed into PubMed Central's search."""
        first, last = self.years
        return f"{self.mesh} AND open access[filter] AND has abstract[filter] AND {first}:{last}[pdat]"


class TrainedModel(Strict):
    """One trained model, or one per domain or task.

    Attributes:
        name: its row in the published tables, with "{domain}" for the domain that it is trained on.
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
        note: a remark on an open choice of the paper.
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
    """The changes at small scale; everything else stays as published.

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
    """The settings that the recipes of one paper share.

    Attributes:
        kind: a key of `recipe_files.KINDS`.
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
    kind: str
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
        """Return the task file of the small scale."""
        return self.file.parent / str(self.small.tasks if real else self.small.simulated)


class Recipe(Strict):
    """One experiment.

    Attributes:
        about: a description.
        tables: the published tables that its models are in.
        beside: recipes whose models belong in the same tables; they are run too.
        runs: the models of `beside`, then its own.
        model: (language models) the paper's name of the model.
        needs_remote_code: the model comes with its own code, which only the user may allow.
        train, small_train, read: over the protocol's, for every run.
    """

    title: str
    about: str
    tables: tuple[str, ...] = ()
    protocol: Protocol
    beside: tuple[str, ...] = ()
    runs: tuple[TrainedModel, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    search: Search | None = None
    model: str | None = None
    needs_remote_code: bool = False
    train: Settings = Field(default_factory=dict)
    small_train: Settings = Field(default_factory=dict)
    read: Settings = Field(default_factory=dict)

    def train_settings(self, run: TrainedModel | None, small: bool) -> Settings:
        """Return a run's training settings, later ones over earlier ones; None: those that runs share."""
        reduced = {**self.protocol.small.train, **self.small_train} if small else {}
        return {**self.protocol.train, **self.train, **(run.train if run else {}), **reduced}

    def compile_settings(self, small: bool) -> Settings:
        """Return the settings of `compile_tasks`."""
        return {**self.protocol.compile, **(self.protocol.small.compile if small else {})}

    def read_settings(self, small: bool) -> Settings:
        """Return how a language model is read; the reduced settings of the small scale come last."""
        return {**self.protocol.read, **self.read, **(self.protocol.small.read if small else {})}

    def evaluate_settings(self, small: bool) -> dict[str, Settings]:
        """Return the settings of each evaluation by its name, `mteb` among them."""
        reduced = self.protocol.small.evaluate if small else None
        return self.protocol.evaluate if reduced is None else reduced


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


def without_benchmark(settings: Mapping[str, Any]) -> Settings:
    """Return the settings of `evaluate`; `mteb` is its data."""
    return {key: value for key, value in settings.items() if key != MTEB}

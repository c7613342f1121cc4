"""A recipe: one published table row or group of rows, as settings of this package.

A recipe names its runs and baselines; its protocol holds what the recipes of one paper share (domains, pairs,
training, evaluation). Every group of settings is checked against the class that will take it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sentence_experts.errors import InputError
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.reproduce.pairs.published import Published
from sentence_experts.reproduce.protocol import Choice, Strict
from sentence_experts.reproduce.reading import RecipeFile, checked
from sentence_experts.training.config import TrainConfig

DOMAIN_IN_ROW = "{domain}"


class Query(Strict):
    """What one domain's papers are asked from PubMed Central with."""

    mesh: str = Field(description="the search term")
    years: tuple[int, int]
    min_citations: int = 1

    def text(self) -> str:
        """As one types it into PubMed Central's search."""
        first, last = self.years
        return f"{self.mesh} AND open access[filter] AND has abstract[filter] AND {first}:{last}[pdat]"


class ExtendOptions(Strict):
    """How a base becomes the model to train; the arguments of `models.extend.extend` of the same names."""

    layers: str | None = None
    route: Literal["token", "prefix", "none"] | None = None
    router: Literal["route", "learned"] | None = None
    pooling: Literal["mean", "cls", "pooler"] | None = None
    head: Literal["tanh"] | None = None
    normalize: bool | None = None
    expert_norms: bool | None = None


class EvaluateOptions(Strict):
    """What is measured; the options of `evaluate` of the same names."""

    split: Literal["train", "validation", "test"] = "test"
    linked_only: bool | None = None
    threshold_min: float | None = None
    tfidf_fit: Literal["train", "evaluated"] | None = None
    bootstrap: int | None = Field(None, ge=0)


class Run(Strict):
    """One trained model, or one for each domain.

    Attributes:
        row: its row in the published tables; "{domain}" stands for the domain of a model that has one alone.
        base: hub id or folder of the pretrained encoder.
        experts: all (one model with a route for each domain) or each (one model a domain, trained on that
            domain alone and evaluated on every domain with its own route).
        train: over the protocol's training settings.
    """

    row: str
    base: str
    experts: Literal["all", "each"] = "all"
    extend: ExtendOptions = ExtendOptions()
    train: dict[str, Any] = Field(default_factory=dict)


class Baseline(Strict):
    """A model that is measured as it is: a hub id, a folder, or `tfidf`. `note` says what is not certain."""

    row: str
    model: str
    pooling: Literal["mean", "last", "cls"] | None = None
    note: str | None = None


class Search(Strict):
    """A search for training settings on one domain, with the verb `tune`.

    Attributes:
        domain: the paper's domain whose pairs are searched on.
        searched: settings that the search draws, so that the protocol's are left out.
        fraction: of the training pairs that a trial sees.
        small_trials: trials at small scale.
    """

    base: str
    domain: str
    extend: ExtendOptions = ExtendOptions()
    searched: tuple[str, ...]
    trials: int = Field(20, ge=1)
    fraction: float = Field(0.1, gt=0, le=1)
    small_trials: int = Field(3, ge=1)


class Small(Strict):
    """What changes at small scale; everything else stays as published.

    Attributes:
        domains: the paper's domain -> the domain of the real or simulated articles that stands in for it.
        pairs, train: over the settings of the full scale.
    """

    domains: dict[str, str]
    base: str = "minilm"
    pairs: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)


class Protocol(Strict):
    """What the recipes of one paper share.

    Attributes:
        file: where it was read.
        published: the paper's figures; domains: rules for `pairs --domains`; plan: the config of
            `corpus fetch`. Paths from the protocol's file.
        evaluate: name of a set of pairs, as in the published figures -> how it is measured.
        seeds: how many training runs with different seeds each model gets.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    file: Path
    faithful: bool
    published: Path
    domains: Path
    plan: Path
    queries: dict[str, Query]
    pairs: dict[str, Any]
    train: dict[str, Any]
    evaluate: dict[str, EvaluateOptions] = Field(min_length=1)
    seeds: int = Field(1, ge=1)
    choices: tuple[Choice, ...] = ()
    small: Small


class Recipe(Strict):
    """One experiment. `about` says what it is, `tables` which published tables hold its rows."""

    title: str
    about: str
    tables: tuple[str, ...]
    protocol: Protocol
    runs: tuple[Run, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    search: Search | None = None
    train: dict[str, Any] = Field({}, description="over the protocol's training settings, for every run")
    small_train: dict[str, Any] = Field({}, description="over the protocol's small.train")

    def train_settings(self, run: Run | None, small: bool) -> dict[str, Any]:
        """A run's training settings, later ones over earlier ones; without a run those that runs share."""
        reduced = {**self.protocol.small.train, **self.small_train} if small else {}
        return {**self.protocol.train, **self.train, **(run.train if run else {}), **reduced}


def read_recipe(path: Path) -> Recipe:
    """Read a recipe, and with it its protocol and the protocol's domain rules and published figures.

    Raises:
        InputError: a file is missing, or a key or value is not known; the message names both.
    """
    file = RecipeFile.read(path)
    read = checked(Protocol, file.with_paths("published", "domains", "plan"), file.source, file.inside)
    recipe = checked(Recipe, {**file.content, "protocol": read}, path)
    _check_settings(recipe, path, file.source)
    return recipe


def _check_settings(recipe: Recipe, path: Path, source: Path) -> None:
    """Every group of settings against the class that takes it, at both scales."""
    protocol = recipe.protocol
    checked(PairsConfig, protocol.pairs, source, "pairs")
    checked(PairsConfig, protocol.small.pairs, source, "small.pairs")
    checked(TrainConfig, protocol.train, source, "train")
    checked(TrainConfig, protocol.small.train, source, "small.train")
    for run in (*recipe.runs, None):
        for small in (False, True):
            inside = f"runs.{run.row}.train" if run else "train"
            checked(TrainConfig, recipe.train_settings(run, small), path, inside)
    Published.read(protocol.published)
    domains = set(DomainRules.read(protocol.domains).domains)
    for key, names in (("queries", protocol.queries), ("small.domains", protocol.small.domains)):
        if set(names) != domains:
            raise InputError(
                f"{source}: {key}: {', '.join(names)}; {protocol.domains} has {', '.join(sorted(domains))}"
            )
    if not (recipe.runs or recipe.baselines or recipe.search):
        raise InputError(f"{path}: runs: a recipe has at least one of runs, baselines and search")
    if recipe.search and recipe.search.domain not in domains:
        raise InputError(f"{path}: search.domain: {recipe.search.domain!r} is none of {', '.join(domains)}")

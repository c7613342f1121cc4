"""Read recipes and check each group of settings against the `Config` of its function."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from sentence_experts.config import Config
from sentence_experts.errors import InputError
from sentence_experts.evaluation.config import AnalyseConfig, EvaluateConfig
from sentence_experts.models.surgery.extend_config import ExtendConfig
from sentence_experts.moee.moee_config import MoeeConfig
from sentence_experts.moee.prompts import NO_PROMPT, PROMPTS
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.pairs.domains import DomainRules
from sentence_experts.reproduce.published import Published, checked
from sentence_experts.reproduce.recipe import Protocol, Recipe, without_benchmark
from sentence_experts.tasks.config import TasksConfig
from sentence_experts.tasks.task_file import TaskFile
from sentence_experts.training.config import TrainConfig
from sentence_experts.yaml_files import read_settings

TRUST = "trust_remote_code"
# Kind of recipe -> the keys that its protocol must have.
KINDS = {
    "pairs": ("domains", "plan", "queries", "pairs", "train", "evaluate"),
    "tasks": ("tasks", "train", "evaluate"),
    "language_models": ("prompts", "evaluate"),
    "analysis": ("analyse",),
}


def read_recipe(path: Path) -> Recipe:
    """Read a recipe with its protocol and the recipes beside it, and check every group of settings.

    Raises:
        InputError: a file is missing, or a key or value is not known; the message names both.
    """
    recipe = _read(path)
    others = [run for name in recipe.beside for run in _read(path.parent / name).runs]
    runs = {run.name: run for run in (*others, *recipe.runs)}
    recipe = recipe.model_copy(update={"runs": tuple(runs.values())})
    published = Published.read(recipe.protocol.published)
    _check_protocol(recipe.protocol)
    for inside, config, settings in _settings_of_recipe(recipe):
        _check_settings(config, settings, path, inside)
    if recipe.protocol.kind in ("pairs", "tasks"):
        _check_names(recipe, published, path)
    elif recipe.model not in published.models:
        raise InputError(f"{path}: model: {recipe.model!r} is none of {', '.join(published.models)}")
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


CheckedSettings = tuple[str, type[Config], Mapping[str, Any]]


def _settings_of_protocol(protocol: Protocol) -> Iterator[CheckedSettings]:
    yield "analyse", AnalyseConfig, protocol.analyse
    for inside, part in (("", protocol), ("small.", protocol.small)):
        yield f"{inside}pairs", PairsConfig, part.pairs
        yield f"{inside}compile", TasksConfig, part.compile
        yield f"{inside}train", TrainConfig, part.train
        yield f"{inside}read", MoeeConfig, part.read
        for name, settings in (part.evaluate or {}).items():
            yield f"{inside}evaluate.{name}", EvaluateConfig, without_benchmark(settings)


def _settings_of_recipe(recipe: Recipe) -> Iterator[CheckedSettings]:
    yield "read", MoeeConfig, recipe.read
    if recipe.search is not None:
        yield "search.extend", ExtendConfig, recipe.search.extend
    for run in (*recipe.runs, None):
        inside = f"runs.{run.name}." if run else ""
        for small in (False, True):
            yield f"{inside}train", TrainConfig, recipe.train_settings(run, small)
        if run is not None:
            yield f"{inside}extend", ExtendConfig, run.extend or {}


def _check_settings(config: type[Config], settings: Mapping[str, Any], path: Path, inside: str) -> None:
    if TRUST in settings:
        raise InputError(
            f"{path}: {inside}.{TRUST}: only the user can allow this; write `needs_remote_code: true`"
        )
    checked(config, settings, path, inside)


def _check_protocol(protocol: Protocol) -> None:
    source = protocol.file
    if protocol.kind not in KINDS:
        raise InputError(f"{source}: kind: {protocol.kind!r} is none of {', '.join(KINDS)}")
    for inside, config, settings in _settings_of_protocol(protocol):
        _check_settings(config, settings, source, inside)
    if missing := next((key for key in KINDS[protocol.kind] if not getattr(protocol, key)), None):
        raise InputError(f"{source}: {missing}: is missing, for recipes of kind {protocol.kind}")
    if protocol.domains is not None:
        domains = DomainRules.read(protocol.domains).domains
        for key, names in (("queries", protocol.queries), ("small.domains", protocol.small.domains)):
            if set(names) != set(domains):
                known = ", ".join(sorted(domains))
                raise InputError(f"{source}: {key}: {', '.join(names)}; {protocol.domains} has {known}")
    if protocol.tasks is not None:
        for file in (protocol.tasks, protocol.small_file(True), protocol.small_file(False)):
            TaskFile.read(file)
    if unknown := [prompt for prompt in protocol.prompts if prompt not in (*PROMPTS, NO_PROMPT)]:
        raise InputError(f"{source}: prompts: {unknown[0]!r} is not one of the paper's prompts")


def _check_names(recipe: Recipe, published: Published, path: Path) -> None:
    """Check names of models, tables, columns and domains against each other."""
    if not (recipe.runs or recipe.baselines or recipe.search):
        raise InputError(f"{path}: runs: a recipe has at least one of runs, baselines and search")
    columns, names, domains = published.columns(), [run.name for run in recipe.runs], recipe.protocol.queries
    for run in recipe.runs:
        if (run.base is None) == (run.average_of is None):
            raise InputError(f"{path}: runs.{run.name}: give one of base and average_of")
        for table, column in run.columns.items():
            if column not in columns.get(table, ()):
                raise InputError(f"{path}: runs.{run.name}.columns: {table} has no column {column!r}")
    named: list[tuple[str, str, Collection[str]]] = [("tables", table, columns) for table in recipe.tables]
    named += [(f"runs.{run.name}.average_of", run.average_of, names) for run in recipe.runs if run.average_of]
    named += [("search.domain", recipe.search.domain, domains)] if recipe.search else []
    for key, name, known in named:
        if name not in known:
            raise InputError(f"{path}: {key}: {name!r} is none of {', '.join(known)}")

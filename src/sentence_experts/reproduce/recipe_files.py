"""Read recipes and check each group of settings against the `Config` of its function."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sentence_experts.config import Config
from sentence_experts.errors import InputError
from sentence_experts.evaluation.config import AnalyseConfig, EvaluateConfig
from sentence_experts.models.surgery.extend_config import ExtendConfig
from sentence_experts.moee.moee_config import MoeeConfig
from sentence_experts.pairs.config import PairsConfig
from sentence_experts.reproduce.kinds import KINDS
from sentence_experts.reproduce.published import Published, checked
from sentence_experts.reproduce.recipe import TRUST, Protocol, Recipe, without_benchmark
from sentence_experts.tasks.config import TasksConfig
from sentence_experts.training.config import TrainConfig
from sentence_experts.yaml_files import read_settings


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
    _check_protocol(recipe.protocol)
    for inside, config, settings in _settings_of_recipe(recipe):
        _check_settings(config, settings, path, inside)
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
    KINDS[protocol.kind].check_protocol(protocol)


def _check_names(recipe: Recipe, published: Published, path: Path) -> None:
    """Check names of models, tables, columns and domains against each other."""
    if KINDS[recipe.protocol.kind].reads_language_model:
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

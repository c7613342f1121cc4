"""What a search varies: training settings, each with the range that it is drawn from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from sentence_experts.config import SettingError, unknown_setting
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError, require
from sentence_experts.training.config import TrainConfig
from sentence_experts.yaml_files import read_settings


class Range(BaseModel):
    """Numbers from low to high, both included; with `log`, uniform on a logarithmic scale."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    type: Literal["int", "float"]
    low: int | float
    high: int | float
    log: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Range:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError("low must be below high, and above 0 with log")
        if self.type == "int" and not (isinstance(self.low, int) and isinstance(self.high, int)):
            raise ValueError("low and high must be whole numbers")
        return self

    @property
    def extremes(self) -> tuple[Any, ...]:
        """The lowest and the highest value."""
        return self.low, self.high

    def distribution(self) -> Any:
        """The distribution of optuna."""
        optuna = require("optuna.distributions", "tune")
        kind = optuna.IntDistribution if self.type == "int" else optuna.FloatDistribution
        return kind(self.low, self.high, log=self.log)


class Categories(BaseModel):
    """One of a few values."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    type: Literal["categorical"]
    choices: tuple[bool | int | float | str | None, ...] = Field(min_length=1)

    @property
    def extremes(self) -> tuple[Any, ...]:
        """Every value that can be drawn."""
        return self.choices

    def distribution(self) -> Any:
        """The distribution of optuna."""
        return require("optuna.distributions", "tune").CategoricalDistribution(self.choices)


SearchSpace = dict[str, Annotated[Range | Categories, Field(discriminator="type")]]
_READER: TypeAdapter[SearchSpace] = TypeAdapter(SearchSpace)

# Batch size, warmup and length are what the preprint (3.3) searched. It states only the range of the batch
# size; the others reach from none to well beyond what its final runs used.
PREPRINT_SPACE: SearchSpace = {
    "batch_size": Range(type="int", low=5, high=20),
    "warmup": Range(type="float", low=0.0, high=0.5),
    "epochs": Range(type="float", low=1.0, high=10.0),
}
# A setting -> the one that it overrides.
OVERRIDES = {"max_steps": "epochs", "warmup_steps": "warmup"}


def read_space(source: Mapping[str, Any] | Path | str | None) -> SearchSpace:
    """A search space: a mapping, one in a YAML file, or (None) the preprint's.

    The file has one line per setting, such as `batch_size: {type: int, low: 5, high: 20}`; the types are
    int, float (both with `log: true` if wanted) and categorical (with `choices`).

    Raises:
        InputError: no such file, or it is not a space of training settings.
        UsageError: the mapping is not one.
    """
    if source is None:
        return dict(PREPRINT_SPACE)
    problem: type[SentenceExpertsError]
    if isinstance(source, Mapping):
        where, problem, content = "`space`", UsageError, dict(source)
    else:
        where, problem, content = str(source), InputError, read_settings(source)
    if not content:
        raise problem(
            f"{where}: a search space is lines such as 'batch_size: {{type: int, low: 5, high: 20}}'"
        )
    for name, values in content.items():
        if not isinstance(values, Mapping | Range | Categories):
            form = "{type: float, low: 0, high: 0.5}"
            raise problem(f"{where}: {name}: give a range, such as {form}, not {values!r}")
    try:
        space = _READER.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise problem(f"{where}: {place}: {first['msg']} (got {first['input']!r})") from error
    if (wrong := _wrong_setting(space)) is not None:
        raise problem(f"{where}: {wrong}")
    return space


def _wrong_setting(space: SearchSpace) -> str | None:
    """Why a setting is not one of `train`, or may not take every value in its range; None if all is well."""
    for name, values in space.items():
        if name not in TrainConfig.model_fields:
            return f"{name}: {unknown_setting(name, TrainConfig.model_fields)}"
        for value in values.extremes:
            try:
                TrainConfig(**{name: value})
            except SettingError as error:
                return f"{name}: {value!r} is not allowed: {error.reason}"
    for stronger, weaker in OVERRIDES.items():
        if stronger in space and weaker in space:
            return f"{stronger} overrides {weaker}; search one of them"
    return None


def without_fixed(space: SearchSpace, config: TrainConfig, given: Collection[str]) -> SearchSpace:
    """The space without what is fixed: settings in `given`, and those that `config` overrides.

    Raises:
        UsageError: nothing is left to search.
    """
    overridden = {weaker for stronger, weaker in OVERRIDES.items() if getattr(config, stronger) is not None}
    left = {name: values for name, values in space.items() if name not in {*given, *overridden}}
    if not left:
        raise UsageError(f"nothing to search: {', '.join(space)} are given; leave one out, or give a `space`")
    return left

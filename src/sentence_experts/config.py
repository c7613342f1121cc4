"""The base of every settings class: one declaration for Python, YAML files, flags and the docs."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, Protocol, Self, TypeVar, get_args, overload

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import write_text
from sentence_experts.yaml_files import read_settings

# In the metadata of a field: commas in its texts are followed by white space, others part them.
PHRASES = "phrases"


def split_phrases(text: str) -> list[str]:
    """Return the texts between commas; a comma before white space belongs to a text, if not all are numbers.

    >>> split_phrases("Education, Medical,Sleep")
    ['Education, Medical', 'Sleep']
    """
    parting = "," if re.fullmatch(r"[\d,\s]+", text) else r",(?!\s)"
    return [part.strip() for part in re.split(parting, text) if part.strip()]


def _check_device(device: str | None) -> str | None:
    if device is not None and device.partition(":")[0] == "meta":
        raise ValueError("computes nothing")
    return device


# Settings that several functions have.
Device = Annotated[
    str | None,
    AfterValidator(_check_device),
    Field(description="cpu, cuda, cuda:1, mps, ... Default: the best one that this machine has"),
]
KeepRetracted = Annotated[
    bool,
    Field(description="Keep papers that are marked as retracted; otherwise they are left out and counted"),
]
BatchSize = Annotated[
    int | None,
    Field(
        ge=1,
        description="Number of texts per batch. Default: batches of about 2,000 tokens per CPU core, or 32 "
        "texts on other devices",
    ),
]
_MEMORY = re.compile(r"([1-9]\d*)\s*([MG])(i?)B", re.IGNORECASE)


def memory_bytes(size: str) -> int:
    """Return the number of bytes in a size such as 4GB, 512 MB or 2GiB.

    Raises:
        ValueError: another unit, or not a whole number.
    """
    match = _MEMORY.fullmatch(size.strip())
    if match is None:
        raise ValueError("give a whole number of MB or GB, such as 4GB")
    number, unit, binary = match.groups()
    return int(number) * (1024 if binary else 1000) ** (2 if unit in "Mm" else 3)


def _check_memory(size: str | None) -> str | None:
    if size is not None:
        memory_bytes(size)
    return size


Memory = Annotated[str | None, AfterValidator(_check_memory)]
"""A memory limit such as 4GB. Whole numbers, since Spark takes no others."""
Column = Annotated[str | None, Field(description="Column with the texts; needed if there are several")]
Dtype = Annotated[
    Literal["float32", "float16", "bfloat16"] | None,
    Field(description="Number type to compute in. Default: as saved"),
]
Names = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
"""Several names; a single one may be given as it is."""
NamesWithCommas = Annotated[
    list[str],
    BeforeValidator(
        lambda given: [name.strip() for name in given.split(",")] if isinstance(given, str) else given
    ),
]
"""Several names; a text holds them with commas between."""
MaxLength = Annotated[
    int | None,
    Field(ge=1, description="Maximum number of tokens per text, if the model would read more"),
]
Seed = Annotated[int, Field(ge=0, lt=2**32, description="Random seed; the same seed gives the same result")]
TrustRemoteCode = Annotated[bool, Field(description="Run code that comes with the weights")]
Revision = Annotated[str | None, Field(description="Revision of a hub model: a branch, tag or commit")]


def describe_unknown(name: str, known: Iterable[str]) -> str:
    """Return the message for a setting that does not exist."""
    close = get_close_matches(name, known := list(known), cutoff=0.7)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
    return f"no such setting; {hint}" if known else "no such setting"


M = TypeVar("M", bound=BaseModel)


def check_content(model: type[M], values: Any, path: Path | str) -> M:
    """Return the content of a file as `model`.

    Raises:
        InputError: an unknown key, or a value that is not allowed; the message names the file and the key.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place, message = first["loc"], first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = describe_unknown(str(place[-1]), _fields_at(model, place[:-1]))
        elif first["type"] != "value_error":
            message = f"{message} (got {first['input']!r})"
        where = ".".join(map(str, place))
        raise InputError(f"{path}: {where and f'{where}: '}{message}") from error


def _fields_at(model: type[BaseModel] | None, place: Sequence[int | str]) -> Iterable[str]:
    """Return the names of the fields that the part of a model at this place has."""
    for part in place:
        field = model.model_fields.get(str(part)) if model else None
        if field is not None:
            parts: list[Any] = [field.annotation]
            while parts and not (isinstance(parts[0], type) and issubclass(parts[0], BaseModel)):
                parts = [*get_args(parts[0]), *parts[1:]]
            model = parts[0] if parts else None
    return model.model_fields if model else ()


P = ParamSpec("P")
S = ParamSpec("S")
R_co = TypeVar("R_co", covariant=True)


class WithSettings(Protocol[P, S, R_co]):
    """A function whose settings an editor completes: each may be given as a keyword."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, first: Any, second: Any = ..., /, *args: S.args, **settings: S.kwargs) -> R_co: ...


def with_settings(config: Callable[S, Config]) -> Callable[[Callable[P, R_co]], WithSettings[P, S, R_co]]:
    """Show the settings of a `Config` as keywords of a function that takes `**settings`.

    They are then in its `help`, and editors and notebooks complete them; the function stays as it is.
    """

    def shown(function: Callable[P, R_co]) -> WithSettings[P, S, R_co]:
        signature = inspect.signature(function)
        parameters = {name: each for name, each in signature.parameters.items() if name != "settings"}
        for name, field in config.model_fields.items():  # type: ignore[attr-defined]
            default = field.get_default(call_default_factory=True)
            kind = inspect.Parameter.KEYWORD_ONLY
            added = inspect.Parameter(name, kind, default=default, annotation=field.annotation)
            parameters.setdefault(name, added)
        function.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
        return function  # type: ignore[return-value]

    return shown


class SettingError(UsageError):
    """An error of the setting `name`; with an empty name, of several settings that contradict each other."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"`{name}`: {reason}" if name else reason)
        self.name, self.reason = name, reason

    @classmethod
    def of(cls, error: ValidationError, settings: Mapping[str, Any], known: Iterable[str]) -> Self:
        """Return the first problem that pydantic found with `settings`; `known` are the existing settings."""
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            return cls(name, describe_unknown(name, known))
        place, value = "", settings.get(name)
        for part in first["loc"][1:]:  # pydantic also names types, which the user did not write
            in_list = isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)
            if in_list or (isinstance(value, Mapping) and part in value):
                place, value = f"{place}{part}: ", value[part]  # type: ignore[index]
        got = f" (got {first['input']!r})" if name else ""
        is_short = first["type"] == "missing" and isinstance(value, list | tuple)
        reason = "too few values" if is_short else first["msg"].removeprefix("Value error, ")
        return cls(name, f"{place}{reason}{got}")


def _check_bool(name: str, value: Any, annotation: Any) -> None:
    """Refuse True where a number belongs and the reverse, which pydantic would convert."""
    members = {annotation, *get_args(annotation)} - {type(None)}
    if isinstance(value, bool):
        if members & {int, float} and bool not in members:
            raise SettingError(name, f"a number, not {value}")
    elif isinstance(value, str | int | float) and bool in members and members <= {bool, annotation}:
        raise SettingError(name, f"True or False, not {value!r}")


class Config(BaseModel):
    """Settings of one public function, and of the verb of the same name.

    A field's description is its help on the command line and its row in the reference; a field's name is the
    keyword in Python, the key in YAML and, with dashes, the flag.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __init__(self, **settings: Any) -> None:
        for name, value in settings.items():
            if (field := type(self).model_fields.get(name)) is not None:
                _check_bool(name, value, field.annotation)
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise SettingError.of(error, settings, type(self).model_fields) from error

    @classmethod
    def of(cls, config: Self | Mapping[str, Any] | Path | str | None = None, **settings: Any) -> Self:
        """Return `config`, or the defaults, with `settings` in place of its values.

        `config` may also be a dict, or the path of a YAML file.

        Raises:
            UsageError: `config` is something else, an unknown setting, or a value that is not allowed; the
                message names the parameter.
            InputError: the YAML file cannot be read, or has an unknown key or a bad value.
        """
        if isinstance(config, Path | str) and Path(config).suffix in (".yaml", ".yml"):
            return cls.read(config, **settings)
        if config is not None and not isinstance(config, cls | Mapping):
            raise UsageError(f"`config` is a dict, a YAML file (.yaml) or {cls.__name__}, not {config!r}")
        if unknown := next((name for name in settings if name not in cls.model_fields), None):
            code = sys._getframe(1).f_code  # code of the function whose settings these are
            others = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            raise UsageError(f"`{unknown}`: {describe_unknown(unknown, [*cls.model_fields, *others])}")
        given = (
            config.model_dump(exclude_unset=True, include=set(cls.model_fields))
            if isinstance(config, cls)
            else dict(config or {})
        )
        return cls(**{**given, **settings})

    @classmethod
    def find_file(cls, path: Path | str) -> Path:
        """Return the YAML file at `path`; a subclass may find shipped ones by name."""
        return Path(path)

    @classmethod
    def read(cls, path: Path | str | None, **settings: Any) -> Self:
        """Read the settings of a YAML file, or the defaults, with `settings` in place of the file's.

        Raises:
            InputError: no such file, not YAML, or an unknown key or a bad value in it.
            UsageError: as in `of`.
        """
        content = {} if path is None else read_settings(cls.find_file(path))
        return cls.check_values({**content, **settings}, settings, path)

    @classmethod
    def check_values(cls, values: dict[str, Any], settings: dict[str, Any], path: Path | str | None) -> Self:
        """Check the settings `values`; the caller gave those in `settings`, and the rest come from `path`.

        Raises:
            InputError: a bad value that comes from the file.
            UsageError: any other bad value.
        """
        try:
            return cls(**values)
        except SettingError as error:
            if path is None or error.name in settings:
                raise
            raise InputError(f"{path}: {error.name and f'{error.name}: '}{error.reason}") from error

    def write(self, path: Path) -> None:
        """Write every setting as YAML."""
        write_text(path, yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False))

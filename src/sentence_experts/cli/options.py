"""Command-line options derived from settings classes: what a `Config` declares is a flag and a YAML key."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from sentence_experts.cli import console
from sentence_experts.cli.help import help_text, name_flags, with_default
from sentence_experts.config import Config, unknown_setting
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.yaml_files import read_settings

SIMPLE_TYPES = (int, float, str, Path)

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model folder, hub id, or 'minilm' (all-MiniLM-L6-v2)")
]
Models = Annotated[
    list[str] | None, typer.Argument(metavar="MODEL...", help="Model folders or hub ids", show_default=False)
]
TEXTS = "Texts: .txt (one per line), .csv, .tsv, .jsonl, each also .gz, or .parquet"
Input = Annotated[Path, typer.Option(help=TEXTS)]
ModelOut = Annotated[Path, typer.Option(help="Folder to write the model to")]
CORPUS = "Folder written by `corpus import` or `corpus fetch`"
Vectors = Annotated[Path, typer.Option(help="Vectors: .parquet (row, id, vector) or .npy (one array)")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Start over, replacing what an earlier run wrote there")
]
TasksFolder = Annotated[Path | None, typer.Option(help="Tasks folder: its test sets are used")]
MtebNames = Annotated[
    list[str] | None,
    Field(description="Tasks or benchmarks of mteb, or groups (mteb-en-56, mteb-medical, moee, ...)"),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="YAML file with any of the settings below; flags override it"
    ),
]


class Fields:
    """Which fields of a settings class are flags: `Annotated[EvaluateConfig, Fields("seed")]`."""

    def __init__(self, *names: str) -> None:
        self.names = names


class Verb(TyperCommand):
    """A command whose errors name its flags where the library names parameters, with plain help."""

    paths: frozenset[str] = frozenset()  # the flags that take a path

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write what `--help` shows."""
        formatter.write(help_text(self, ctx.command_path))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse empty paths, as from a variable that is not set: they would mean the working directory."""
        for before, argument in zip(["", *args], args, strict=False):
            flag, equals, value = argument.partition("=")
            flag = flag if equals else before
            if not (value if equals else argument) and (flag in self.paths or not flag.startswith("-")):
                raise UsageError(f"{flag if flag in self.paths else 'an argument'}: empty")
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def invoke(self, ctx: Any) -> Any:
        """Run the command; `` `top_k` `` in a note or the message of an error becomes `--top-k`."""
        console.parameters[:] = self.params
        try:
            return super().invoke(ctx)
        except SentenceExpertsError as error:
            error.args = (name_flags(str(error), self.params),)
            raise
        except EOFError as error:  # typer would take it for the end of a dialogue
            raise InputError(f"an input file ends too early, it is truncated ({error})") from error
        finally:
            console.parameters.clear()


def one_of(**given: Any) -> Any:
    """The one value that is given.

    Raises:
        UsageError: there is none, or more than one.
    """
    names = [name for name, value in given.items() if value]
    if len(names) != 1:
        known = [f"`{name}`" for name in given]
        got = " and ".join(f"`{name}`" for name in names) or "none"
        raise UsageError(f"give one of {', '.join(known[:-1])} and {known[-1]} (got {got})")
    return given[names[0]]


def check_there(*paths: Path | None) -> None:
    """Check that files and folders that will be read are there, before anything heavy is imported.

    Raises:
        InputError: one is not.
    """
    for path in paths:
        if path is not None and not path.exists():
            raise InputError(f"{path}: no such file or folder")


def add_verb(
    app: typer.Typer,
    command: Callable[..., Any],
    name: str | None = None,
    short: Mapping[str, str] = {},
    find_config: Callable[[Path], Path] = Path,
) -> None:
    """Add `command` to `app`, with one option per field of each parameter that is a `Config`.

    Each `Config` parameter receives the settings of the command line, over those of the file that `--config`
    names. A parameter annotated with pydantic's `Field(description=...)` is a flag of the same forms
    (`NAME,NAME,...`, `NAME=VALUE`), which the file does not hold. Other parameters stay as typer has them.

    Args:
        app: where the verb belongs.
        command: the function that runs.
        name: of the verb; the function's own name if not given.
        short: short flags by parameter, such as {"top_k": "-k"}.
        find_config: finds the file that --config names.
    """
    run = with_options(command, short, find_config)
    paths = (each for each, kind in run.__annotations__.items() if Path in _members(kind))
    flags = frozenset(f"--{each.replace('_', '-')}" for each in paths)
    verb = type("VerbWithPaths", (Verb,), {"paths": flags})
    app.command(name or command.__name__.strip("_"), cls=verb)(run)


def with_options(
    command: Callable[..., Any], short: Mapping[str, str], find_config: Callable[[Path], Path]
) -> Callable[..., Any]:
    """`command` with one keyword per field of its `Config` parameters, as typer reads them."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    own = [each for each in parameters if _config_of(each.annotation) is None]
    described = {each.name: field for each in own if (field := _field_of(each)) is not None}
    configs = {p.name: config for p in parameters if (config := _config_of(p.annotation)) is not None}
    fields = {
        name: config.model_fields[name]
        for config, names in configs.values()
        for name in names
        if name not in {each.name for each in own} and _has_flag(config.model_fields[name])
    }

    @wraps(command)
    def run(config_file: Path | None = None, **values: Any) -> Any:
        given = _given(fields, values)
        values.update(_given(described, values))
        file = None if config_file is None else find_config(config_file)
        return command(**values, **_build(configs, given, file))

    options = [_option(name, field, short.get(name)) for name, field in fields.items()]
    if configs:
        options.insert(0, _keyword("config_file", ConfigFile, None))
    own = [
        _option(each.name, described[each.name], short.get(each.name)) if each.name in described else each
        for each in own
    ]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *options]
    )
    run.__annotations__ = {each.name: each.annotation for each in [*own, *options]}
    return run


def _field_of(parameter: inspect.Parameter) -> FieldInfo | None:
    """What pydantic's `Field` says of a command's own parameter."""
    for each in get_args(parameter.annotation)[1:] if get_origin(parameter.annotation) is Annotated else ():
        if isinstance(each, FieldInfo):
            return FieldInfo.from_annotated_attribute(parameter.annotation, parameter.default)
    return None


def _given(fields: Mapping[str, FieldInfo], values: dict[str, Any]) -> dict[str, Any]:
    """The values of the flags of `fields` that are given, taken out of `values`."""
    parsed = {name: _parsed(name, field, values.pop(name, None)) for name, field in fields.items()}
    return {name: value for name, value in parsed.items() if value is not None}


def _has_flag(field: FieldInfo) -> bool:
    """Whether a field is a flag; one that holds a model itself is a key of YAML files only."""
    return not any(
        inspect.isclass(each) and issubclass(each, BaseModel) for each in _members(field.annotation)
    )


def _config_of(annotation: Any) -> tuple[type[Config], list[str]] | None:
    """The settings class that a parameter asks for, and which of its fields; None for other parameters."""
    names: list[str] | None = None
    if get_origin(annotation) is Annotated:
        annotation, *others = get_args(annotation)
        names = next((list(each.names) for each in others if isinstance(each, Fields)), None)
    if not (inspect.isclass(annotation) and issubclass(annotation, Config)):
        return None
    return annotation, list(annotation.model_fields) if names is None else names


def _build(
    configs: Mapping[str, tuple[type[Config], list[str]]], given: dict[str, Any], file: Path | None
) -> dict[str, Config]:
    content = {} if file is None else read_settings(file)
    known = [name for _, names in configs.values() for name in names]
    if unknown := [str(name) for name in content if name not in known]:
        raise InputError(f"{file}: {unknown[0]}: {unknown_setting(unknown[0], known)}")
    built: dict[str, Config] = {}
    for parameter, (config, names) in configs.items():
        of_file, of_flags = (
            {name: value for name, value in source.items() if name in names} for source in (content, given)
        )
        built[parameter] = config.checked({**of_file, **of_flags}, of_flags, file)
    return built


def _option(name: str, field: FieldInfo, short: str | None) -> inspect.Parameter:
    kind = _Kind(field)
    default = field.get_default(call_default_factory=True) if not field.is_required() else None
    flag = "--" + name.replace("_", "-")
    names = [f"{flag}/--no-{flag[2:]}"] if kind.is_bool else [flag]
    option = typer.Option(
        *names,
        *([short] if short else []),
        help=with_default(kind.description, default),
        metavar=kind.metavar,
        show_default=False,
    )
    return _keyword(name, Annotated[kind.annotation, option], None)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


class _Kind:
    """How values of a field are written on the command line."""

    def __init__(self, field: FieldInfo) -> None:
        members = [each for each in _members(field.annotation) if each is not type(None)]
        members = [Path] if Path in members else members  # other forms are for the config file only
        text = (field.description or "").strip()
        self.description = text if text.endswith("...") else text.removesuffix(".")
        origins = [get_origin(each) or each for each in members]
        self.is_bool = bool in origins
        self.is_mapping = dict in origins or Mapping in origins
        self.is_list = not self.is_mapping and any(each in origins for each in (list, tuple))
        self.is_tuple = tuple in origins
        # A union such as Literal["all"] | list[int]: a word, or values between commas.
        self.is_mixed = self.is_list and len(members) > 1
        choices = [str(value) for each in members if get_origin(each) is Literal for value in get_args(each)]
        inner = get_args(members[origins.index(list)]) if list in origins else ()
        choices += [str(v) for each in inner if get_origin(each) is Literal for v in get_args(each)]
        self.metavar: str | None = "|".join(choices) if choices and not self.is_bool else None
        if self.is_mixed:
            self.metavar = f"{self.metavar}|N,N,..." if self.metavar else None
        if self.is_mapping:
            value_type = get_args(members[0])[1] if get_args(members[0]) else str
            self.mapped_to_lists = get_origin(value_type) is list
            self.mapped_to_numbers = value_type in (int, float)
            self.metavar = "NAME=NUMBER" if self.mapped_to_numbers else "NAME=VALUE"
            # "LABEL=MODEL: what to call a model" says what stands on both sides.
            if form := re.match(r"(\S+=\S+): ", self.description):
                self.metavar, self.description = form[1], self.description[form.end() :]
                self.description = self.description[:1].upper() + self.description[1:]
        elif self.metavar is None and self.is_list:
            numbers = any(each in (int, float) for member in members for each in get_args(member))
            self.metavar = "N,N,..." if numbers else "NAME,NAME,..."
        self.annotation: Any = self._typer_type(members)

    def _typer_type(self, members: list[Any]) -> Any:
        if self.is_bool:
            return bool | None
        if self.is_mapping or (self.is_list and not self.is_tuple and not self.is_mixed):
            return list[str] | None
        if len(members) == 1 and members[0] in SIMPLE_TYPES:
            return members[0] | None
        return str | None


def _members(annotation: Any) -> list[Any]:
    """The types of a union, or the one type; what `Annotated` adds is left out."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for each in get_args(annotation) for member in _members(each)]
    return [annotation]


def _parsed(name: str, field: FieldInfo, value: Any) -> Any:
    """A flag's value as the field's type takes it; None if the flag was not given."""
    kind = _Kind(field)
    if value is None or value == []:
        return None
    if kind.is_mapping:
        return _mapping(name, value, kind)
    if kind.is_mixed:
        parts = [part.strip() for part in value.split(",")]
        return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else value
    if kind.is_list:
        values = [value] if isinstance(value, str) else value
        return [part.strip() for each in values for part in each.split(",") if part.strip()]
    return value


def _mapping(name: str, values: list[str], kind: _Kind) -> dict[str, Any]:
    if kind.mapped_to_numbers:
        values = [part for value in values for part in value.split(",")]
    pairs: dict[str, Any] = {}
    for value in values:
        key, equals, text = value.partition("=")
        key = key.strip()
        if not (key and equals):
            raise UsageError(f"`{name}`: {value!r} is not of the form {kind.metavar}")
        if kind.mapped_to_lists:
            pairs.setdefault(key, []).append(text)
        elif key in pairs:
            raise UsageError(f"`{name}`: {key!r} is given twice")
        else:
            pairs[key] = text
    return pairs

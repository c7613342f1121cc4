"""Command-line options derived from settings classes: what a `Config` declares is a flag and a YAML key."""

from __future__ import annotations

import inspect
import os
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
from sentence_experts.config import PHRASES, Config, describe_unknown, split_phrases
from sentence_experts.errors import InputError, SentenceExpertsError, UsageError
from sentence_experts.yaml_files import read_settings

SIMPLE_TYPES = (int, float, str, Path)
SHORT_FLAGS = {"top_k": "-k"}

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model folder, hub id, or 'minilm' (all-MiniLM-L6-v2)")
]
Models = Annotated[
    list[str] | None, typer.Argument(metavar="MODEL", help="Model folders or hub ids", show_default=False)
]
ModelOut = Annotated[Path, typer.Option(help="Folder to write the model to")]
TEXTS = "Texts: .txt (one per line), .csv, .tsv, .jsonl, each also .gz, or .parquet"
Input = Annotated[Path, typer.Option(help=TEXTS)]
CORPUS = "Folder written by `corpus import` or `corpus fetch`"
Corpus = Annotated[Path, typer.Argument(metavar="CORPUS", help=CORPUS)]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Start over, replacing what an earlier run wrote there; after an interruption, go on",
    ),
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
    """The fields of a settings class that are flags: `Annotated[EvaluateConfig, Fields("seed")]`."""

    def __init__(self, *names: str) -> None:
        self.names = names


class Verb(TyperCommand):
    """A command whose help and errors name its flags where the library names parameters."""

    params: list[Any]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for each in self.params:
            each.help = console.name_flags(each.help or "", self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option given twice, and empty values, as of a variable that is not set.

        An empty path would mean the working directory.
        """
        args = [_with_home(each) for each in args]
        for before, argument in zip(["", *args], args, strict=False):
            is_open = re.fullmatch(r"--[a-z0-9-]+=", argument)
            if is_open or not argument:
                flag = argument[:-1] or before
                raise UsageError(f"{flag if flag.startswith('-') else 'an argument'} is empty: give a value")
        given = self.make_parser(ctx).parse_args([*args])[2]
        single = [each for each in given if each.param_type_name == "option" and not each.multiple]
        twice = next((each for each in single if single.count(each) > 1), None)
        if twice and not any(each.is_eager for each in given):  # such as --help
            raise UsageError(
                f"{'/'.join([twice.opts[0], *twice.secondary_opts])} is given twice: give it once"
            )
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def invoke(self, ctx: Any) -> Any:
        """Run the command; `` `top_k` `` in a note or the message of an error becomes `--top-k`."""
        console.parameters[:] = self.params
        try:
            return super().invoke(ctx)
        except SentenceExpertsError as error:
            error.args = (console.name_flags(str(error)),)
            raise
        except EOFError as error:  # typer would take it for the end of a dialogue
            raise InputError(f"an input file ends too early, it is truncated ({error})") from error
        finally:
            console.parameters.clear()


def _with_home(argument: str) -> str:
    """Read the "~" of "--out=~/corpus", which a shell leaves as it is."""
    flag, _, value = argument.partition("=")
    return f"{flag}={os.path.expanduser(value)}" if flag[:2] == "--" and value[:2] == "~/" else argument


def one_of(**given: Any) -> Any:
    """Return the one value that is given.

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


def group(text: str, *commands: Callable[..., Any]) -> typer.Typer:
    """Return a group of commands, which `text` describes."""
    verbs = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=text)
    for command in commands:
        add_verb(verbs, command)
    return verbs


def add_verb(app: typer.Typer, command: Callable[..., Any], name: str | None = None) -> None:
    """Add `command` to `app`, with one option per field of each parameter that is a `Config`.

    Each `Config` parameter receives the settings of the command line, over the file's that `--config`
    names. A parameter annotated with pydantic's `Field(description=...)` is a flag of the same forms
    (`NAME,NAME,...`, `NAME=VALUE`), which the file does not hold. Other parameters stay as typer has them.
    The verb's name is made from the function's if it is not given.
    """
    name = name or command.__name__.strip("_").replace("_", "-")
    app.command(name, cls=Verb)(_with_flags(command))


def _with_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return `command` with one keyword per field of its `Config` parameters, as typer reads them."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    configs = {each.name: config for each in parameters if (config := _find_config(each.annotation))}
    own = {each.name: each for each in parameters if each.name not in configs}
    described = {name: _Flag(name, field) for name, each in own.items() if (field := _find_field(each))}
    flags = {
        name: _Flag(name, config.model_fields[name])
        for config, names in configs.values()
        for name in names
        if name not in own
        # A field that holds a model itself is a key of YAML files only.
        and not any(isinstance(each, type) and issubclass(each, BaseModel)
                    for each in _list_members(config.model_fields[name].annotation))
    }  # fmt: skip

    @wraps(command)
    def run(config_file: Path | None = None, **values: Any) -> Any:
        given = _take_given(flags, values)
        values.update(_take_given(described, values))
        return command(**values, **_build(configs, given, config_file))

    options = [described[name].parameter() if name in described else each for name, each in own.items()]
    options += [_make_keyword("config_file", ConfigFile, None)] if configs else []
    options += [flag.parameter() for flag in flags.values()]
    options = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def _find_field(parameter: inspect.Parameter) -> FieldInfo | None:
    """Return the `Field` of pydantic of a command's parameter that no `Config` holds."""
    for each in get_args(parameter.annotation)[1:] if get_origin(parameter.annotation) is Annotated else ():
        if isinstance(each, FieldInfo):
            return FieldInfo.from_annotated_attribute(parameter.annotation, parameter.default)
    return None


def _take_given(flags: Mapping[str, _Flag], values: dict[str, Any]) -> dict[str, Any]:
    """Take the values of the flags that are given out of `values`."""
    taken = {name: values.pop(name, None) for name in flags}
    return {name: flags[name].parse(value) for name, value in taken.items() if value not in (None, [])}


def _find_config(annotation: Any) -> tuple[type[Config], list[str]] | None:
    """Return the settings class that a parameter asks for and its fields; None for other parameters."""
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
    """Return the settings of each `Config` parameter, from the file and over it the flags."""
    if file is not None:
        for config, _ in configs.values():
            file = config.find_file(file)
    content = {} if file is None else read_settings(file)
    known = [name for _, names in configs.values() for name in names]
    if unknown := [str(name) for name in content if name not in known]:
        raise InputError(f"{file}: {unknown[0]}: {describe_unknown(unknown[0], known)}")
    built: dict[str, Config] = {}
    for parameter, (config, names) in configs.items():
        from_file, from_flags = (
            {name: value for name, value in source.items() if name in names} for source in (content, given)
        )
        built[parameter] = config.check_values({**from_file, **from_flags}, from_flags, file)
    return built


def _make_keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


class _Flag:
    """A setting as it is written on the command line."""

    def __init__(self, name: str, field: FieldInfo) -> None:
        members = [each for each in _list_members(field.annotation) if each is not type(None)]
        # Other forms than a path, and mappings beside a plain value, are for Python and the config file only.
        members = [each for each in members if get_origin(each) is not dict] or members
        members = [Path] if Path in members else members
        origins = {get_origin(each) or each for each in members}
        self.name, self.field = name, field
        self.is_bool = bool in origins
        self.is_mapping = bool(origins & {dict, Mapping})
        self.is_list = not self.is_mapping and bool(origins & {list, tuple})
        # A union such as Literal["all"] | list[int]: a word, or values between commas.
        self.is_mixed = self.is_list and len(members) > 1
        self.value_type = (*get_args(members[0]), str, str)[1] if self.is_mapping else None
        self.annotation: Any = str | None
        if self.is_bool:
            self.annotation = bool | None
        elif self.is_mapping or (self.is_list and tuple not in origins and not self.is_mixed):
            self.annotation = list[str] | None
        elif len(members) == 1 and members[0] in SIMPLE_TYPES:
            self.annotation = members[0] | None
        self.metavar = self._metavar(members)

    def _metavar(self, members: list[Any]) -> str | None:
        """Return the placeholder of the flag's value, if typer has no better one."""
        if self.is_bool:
            return None
        if self.is_mapping:
            form = re.match(r"(\S+=\S+): ", self.field.description or "")
            return form[1] if form else "NAME=NUMBER" if self.value_type in (int, float) else "NAME=VALUE"
        inner = [
            each for member in members if get_origin(member) in (list, tuple) for each in get_args(member)
        ]
        literals = [each for each in (*members, *inner) if get_origin(each) is Literal]
        forms = [str(value) for each in literals for value in get_args(each)]
        if self.is_list and (self.is_mixed or not forms):
            forms.append("N,N,..." if {int, float} & {*inner} else "NAME,NAME,...")
        return "|".join(forms) or None

    def parameter(self) -> inspect.Parameter:
        """Return the parameter of a command that typer makes the flag of."""
        text = (self.field.description or "").strip()
        text = text if text.endswith("...") else text.removesuffix(".")
        if self.is_mapping and text.startswith(f"{self.metavar}: "):
            text = text.removeprefix(f"{self.metavar}: ")
            text = text[:1].upper() + text[1:]
        default = None if self.field.is_required() else self.field.get_default(call_default_factory=True)
        if default is not None and default is not False and default not in ([], {}, ()):
            text = f"{text}. Default: {_format_default(default)}"
        flag = "--" + self.name.replace("_", "-")
        option = typer.Option(
            f"{flag}/--no-{flag[2:]}" if self.is_bool else flag,
            *([SHORT_FLAGS[self.name]] if self.name in SHORT_FLAGS else []),
            help=text,
            metavar=self.metavar,
            show_default=False,
        )
        return _make_keyword(self.name, Annotated[self.annotation, option], None)

    def parse(self, value: Any) -> Any:
        """Return a value of the command line as the field's type takes it."""
        if self.is_mapping:
            return self._mapping(value)
        if self.is_mixed:
            parts = [part.strip() for part in value.split(",")]
            return [int(part) for part in parts] if all(part.isdecimal() for part in parts) else value
        if self.is_list:
            values = [value] if isinstance(value, str) else value
            if PHRASES in self.field.metadata:
                return [part for each in values for part in split_phrases(each)]
            return [part.strip() for each in values for part in each.split(",") if part.strip()]
        return value

    def _mapping(self, values: list[str]) -> dict[str, Any]:
        if self.value_type in (int, float):
            values = [part for value in values for part in value.split(",")]
        pairs: dict[str, Any] = {}
        for value in values:
            key, equals, text = value.partition("=")
            key = key.strip()
            if not (key and equals):
                raise UsageError(f"`{self.name}`: {value!r} is not of the form {self.metavar}")
            if get_origin(self.value_type) is list:
                pairs.setdefault(key, []).append(text)
            elif key in pairs:
                raise UsageError(f"`{self.name}`: {key!r} is given twice")
            else:
                pairs[key] = text
        return pairs


def _list_members(annotation: Any) -> list[Any]:
    """Return the types of a union, or the one type, without what `Annotated` adds."""
    if get_origin(annotation) is Annotated:
        return _list_members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for each in get_args(annotation) for member in _list_members(each)]
    return [annotation]


def _format_default(default: Any) -> str:
    if default is True:
        return "on"
    if isinstance(default, Mapping):
        return " ".join(f"{name}={value}" for name, value in default.items())
    return ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)

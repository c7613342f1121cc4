"""Command-line flags made from a settings class, so that every key of its YAML file is also a flag."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, get_args

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from typer.models import OptionInfo

from sentence_experts.errors import UsageError

Settings = TypeVar("Settings", bound=BaseModel)
BATCH_SIZE_HELP = (
    "Texts encoded at once. When not given, a CPU's cores each take batches of some 2,000 tokens, another "
    "device takes 32 texts."
)
SIMPLE_TYPES = (bool, int, float, str)


def with_settings(settings: type[BaseModel], parameter: str = "given") -> Callable[[Callable], Callable]:
    """Give a command one option for each field of `settings`.

    The command's parameter `given` receives a dict of the options that were written on the command line.
    Help texts are the fields' descriptions, with their defaults. A field that is `Annotated` with a
    `typer.Option` keeps that one (for a list, a path, a flag without its opposite), and its default is always
    in the dict.
    """

    def decorate(command: Callable) -> Callable:
        own = [
            p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != parameter
        ]

        def wrapper(**values: Any) -> Any:
            given = {name: values.pop(name) for name in settings.model_fields}
            return command(**values, **{parameter: {k: v for k, v in given.items() if v is not None}})

        flags = [_flag(name, field) for name, field in settings.model_fields.items()]
        wrapper.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in [*own, *flags]}
        wrapper.__doc__ = command.__doc__
        wrapper.__name__ = command.__name__
        return wrapper

    return decorate


def only_route(one_route: bool, route: str | None) -> str | None:
    """The route whose expert alone is to be loaded, if --one-route says so.

    Raises:
        UsageError: it does, but no route is named.
    """
    if one_route and route is None:
        raise UsageError("--one-route loads the expert of one route: name it with --route")
    return route if one_route else None


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    for option in field.metadata:
        if isinstance(option, OptionInfo):
            default = inspect.Parameter.empty if field.is_required() else field.default
            return _parameter(name, Annotated[field.annotation, option], default)
    kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if kind in SIMPLE_TYPES]
    kind = kinds[0] if kinds else str
    help_text = field.description or ""
    if field.default is not None:
        help_text = f"{help_text}. Default: {field.default}"
    option = typer.Option(help=help_text, show_default=False)
    return _parameter(name, Annotated[kind | None, option], None)  # type: ignore[valid-type]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def parse_settings(settings: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Build settings from flags.

    Raises:
        UsageError: a value is not allowed; the message names the flag.
    """
    try:
        return settings.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        flag = "--" + str(first["loc"][0]).replace("_", "-")
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{flag} {first['input']!r}: {message}") from error

"""YAML files and settings, refused key by key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from sentence_experts.errors import InputError, UsageError

Model = TypeVar("Model", bound=BaseModel)


def read_yaml(path: Path) -> dict[str, Any]:
    """The file's mapping.

    Raises:
        InputError: no such file, not YAML, or not a mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a list of 'key: value' lines")
    return content


def read_model(model: type[Model], path: Path) -> Model:
    """The file's content as `model`.

    Raises:
        InputError: as `read_yaml`, and as `checked`.
    """
    return checked(model, read_yaml(path), path)


def checked(model: type[Model], values: Mapping[str, Any], path: Path, inside: str = "") -> Model:
    """`values` as `model`; an error names the file and the key, which stands under `inside`.

    Raises:
        InputError: an unknown key, a value that is not allowed, or values that do not go together.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in (*([inside] if inside else []), *first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        known = f"; known keys: {', '.join(model.model_fields)}" if len(first["loc"]) == 1 else ""
        known = known if first["type"] == "extra_forbidden" else ""
        raise InputError(f"{path}: {key}: {message} (got {first['input']!r}){known}") from error
    except UsageError as error:  # raised by a class that is also a command's options
        raise InputError(f"{path}: {inside}: {error}") from error

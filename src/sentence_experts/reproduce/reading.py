"""YAML files and settings, refused key by key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class RecipeFile:
    """A recipe as it is written, with its protocol, which stands in a file of its own or in the recipe.

    Attributes:
        protocol: its keys; those that name files beside it are paths already, and `file` is where it stands.
        source: that file.
        inside: what the protocol's keys stand under in it.
    """

    path: Path
    content: dict[str, Any]
    protocol: dict[str, Any]
    source: Path
    inside: str

    @classmethod
    def read(cls, path: Path) -> RecipeFile:
        """Read both.

        Raises:
            InputError: no such file, not YAML, or no protocol.
        """
        content = read_yaml(path)
        protocol = content.pop("protocol", None)
        source = path
        if isinstance(protocol, str):
            source = path.parent / protocol
            protocol = read_yaml(source)
        if not isinstance(protocol, dict):
            raise InputError(f"{path}: protocol: name a protocol's file, or write its keys here")
        return cls(path, content, {**protocol, "file": source}, source, "protocol" if source == path else "")

    def with_paths(self, *keys: str) -> dict[str, Any]:
        """The protocol, with the files that these keys name as paths."""
        named = {key: str(self.protocol[key]) for key in keys if key in self.protocol}
        beside = {key: Path(os.path.normpath(self.source.parent / name)) for key, name in named.items()}
        return {**self.protocol, **beside}


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

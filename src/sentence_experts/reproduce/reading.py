"""Recipes and published figures in YAML files, checked key by key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sentence_experts.config import SettingError, unknown_setting
from sentence_experts.errors import InputError

Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """A part of a file: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def checked(model: type[Model], values: Mapping[str, Any], path: Path, inside: str = "") -> Model:
    """`values` as `model`; an error names the file and the key, which stands under `inside`.

    Raises:
        InputError: an unknown key, a value that is not allowed, or values that contradict each other.
    """
    try:
        return model.model_validate(dict(values))
    except SettingError as error:
        key = ".".join(part for part in (inside, error.name) if part)
        raise InputError(f"{path}: {f'{key}: ' if key else ''}{error.reason}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in (*([inside] if inside else []), *first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = model.model_fields if len(first["loc"]) == 1 else ()
            message = unknown_setting(str(first["loc"][-1]), known)
        elif first["loc"]:
            message = f"{message} (got {first['input']!r})"
        raise InputError(f"{path}: {f'{key}: ' if key else ''}{message}") from error

"""The base of every settings class: one declaration for Python, YAML files, flags and the docs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sentence_experts.errors import InputError, UsageError
from sentence_experts.storage import write_text
from sentence_experts.yaml_files import read_settings

# Settings that several functions have.
Device = Annotated[
    str | None, Field(description="cpu, cuda, cuda:1, mps, ... Default: the best one that this machine has")
]
BatchSize = Annotated[
    int | None,
    Field(
        ge=1,
        description="Number of texts per batch. Default: batches of about 2,000 tokens per CPU core, or 32 "
        "texts on other devices",
    ),
]
TrustRemoteCode = Annotated[bool, Field(description="Run code that comes with the weights")]
Revision = Annotated[str | None, Field(description="Revision of a hub model: a branch, tag or commit")]


class Config(BaseModel):
    """Settings of one public function, and of the verb of the same name.

    A field's description is its help on the command line and its row in the reference; a field's name is the
    keyword in Python, the key in YAML and, with dashes, the flag.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, config: Self | Mapping[str, Any] | None = None, **settings: Any) -> Self:
        """`config`, which can be a dict, or the defaults, with `settings` in place of its own.

        Raises:
            UsageError: `config` is something else, an unknown setting, or a value that is not allowed; the
                message names the parameter.
        """
        if config is not None and not isinstance(config, cls | Mapping):
            raise UsageError(f"`config` must be a {cls.__name__} or a dict, got a {type(config).__name__}")
        given = config.model_dump(exclude_unset=True) if isinstance(config, cls) else dict(config or {})
        return cls.checked({**given, **settings}, settings, None)

    @classmethod
    def read(cls, path: Path | str | None, **settings: Any) -> Self:
        """The settings of a YAML file, or the defaults, with `settings` in place of the file's.

        Raises:
            InputError: no such file, not YAML, or an unknown key or a bad value in it.
            UsageError: as `of`.
        """
        content = {} if path is None else read_settings(path)
        return cls.checked({**content, **settings}, settings, path)

    @classmethod
    def checked(cls, values: dict[str, Any], settings: dict[str, Any], path: Path | str | None) -> Self:
        """The settings `values`, of which `settings` were given by the caller and the rest come from `path`.

        Raises:
            InputError: a bad value that comes from the file.
            UsageError: any other one.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else ""
            message = first["msg"].removeprefix("Value error, ")
            if first["type"] == "extra_forbidden":
                message = f"no such setting; known: {', '.join(cls.model_fields)}"
            elif name:
                message = f"{message} (got {first['input']!r})"
            if path is None or name in settings:
                raise UsageError(f"`{name}`: {message}" if name else message) from error
            raise InputError(f"{path}: {f'{name}: ' if name else ''}{message}") from error

    def write(self, path: Path) -> None:
        """Write every setting as YAML."""
        write_text(path, yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False))

"""Values of JSON records that may be of any type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def text(value: Any) -> str | None:
    """A text, or a whole number as one; None for anything else."""
    return value if isinstance(value, str) else str(value) if type(value) is int else None


def items(value: Any) -> list[Any]:
    """A list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def mapping(value: Any) -> Mapping[str, Any]:
    """An object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """The objects in a list."""
    return (each for each in items(value) if isinstance(each, dict))

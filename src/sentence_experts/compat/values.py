"""Descriptions of values, classes and functions of the user's own: equal where they do the same."""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from types import CodeType
from typing import Any

import numpy as np
import torch

_DEEPEST = 4
_NOT_SETTINGS = {"training", "model_card_data"}


def describe_values(value: Any, depth: int = 0) -> Any:
    """Return what tells a value from others, as plain JSON, and nothing that its use or the process changes.

    Functions are told by their code, defaults and closures; objects by the source of their class, and by the
    attributes that its `__init__` takes or that are texts, fractions, truth values or functions, since others
    may be counters and caches.
    """
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().reshape(-1)
        content = flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""
        return _hash(f"{value.dtype} {tuple(value.shape)}".encode() + content)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return _hash(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if depth > _DEEPEST:
        return type(value).__qualname__
    if isinstance(value, set | frozenset):
        return sorted(str(describe_values(each, depth + 1)) for each in value)
    if isinstance(value, list | tuple):
        return [describe_values(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {str(name): describe_values(each, depth + 1) for name, each in value.items()}
    function = getattr(getattr(value, "func", value), "__func__", getattr(value, "func", value))
    if isinstance(code := getattr(function, "__code__", None), CodeType):
        cells = [_content(cell) for cell in function.__closure__ or ()]
        own = [function.__defaults__, function.__kwdefaults__, cells]
        return [_describe_code(code), describe_values(own, depth + 1)]
    kind: Any = type(value)
    return [kind.__qualname__, _source_of(kind), _settings_of(value, depth)]


def _settings_of(value: Any, depth: int) -> dict[str, Any]:
    attributes = getattr(value, "__dict__", {})
    try:
        taken = {*inspect.signature(type(value).__init__).parameters}
    except (TypeError, ValueError):  # a class of C
        taken = set()
    return {
        name: describe_values(each, depth + 1)
        for name, each in sorted(attributes.items())
        if name not in _NOT_SETTINGS and not name.startswith("_")
        if name in taken or isinstance(each, str | float | bool) or inspect.isroutine(each)
    }


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


def _describe_code(code: CodeType) -> list[Any]:
    inner = [_describe_code(each) for each in code.co_consts if isinstance(each, CodeType)]
    constants = [describe_values(each) for each in code.co_consts if not isinstance(each, CodeType)]
    return [code.co_code.hex(), list(code.co_names), constants, inner]


@cache
def _source_of(kind: Any) -> str:
    """Return the hash of a class's text, or, if it is in no file, of the code of its methods."""
    try:
        return _hash(inspect.getsource(kind).encode())
    except (OSError, TypeError):
        functions = (each for each in vars(kind).values() if inspect.isfunction(each))
        return _hash(repr([_describe_code(each.__code__) for each in functions]).encode())


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

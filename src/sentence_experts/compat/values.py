"""Descriptions of values, classes and functions of the user's own: equal where they do the same."""

from __future__ import annotations

import hashlib
import inspect
from functools import cache, partial
from types import CodeType
from typing import Any

import numpy as np
import torch

_DEEPEST = 4
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_VALUES = (float, list, tuple, dict, set, np.ndarray, torch.Tensor)
_NOT_SETTINGS = {"model_card_data", "_model_card_vars", *vars(torch.nn.Module())}


def describe_values(value: Any, depth: int = 0) -> Any:
    """Return what tells a value from others, as plain JSON: the same in every process.

    Functions are told by their code, defaults and closures; objects by the source of their class and by
    attributes (`_settings_of`).
    """
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return _hash(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    if depth > _DEEPEST:
        return type(value).__qualname__
    if isinstance(value, set | frozenset):
        return sorted(str(describe_values(each, depth + 1)) for each in value)
    if isinstance(value, list | tuple | np.ndarray):
        return [describe_values(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {str(name): describe_values(each, depth + 1) for name, each in value.items()}
    if isinstance(value, partial):
        return describe_values([value.func, value.args, value.keywords], depth + 1)
    function = getattr(value, "__func__", value)
    if isinstance(code := getattr(function, "__code__", None), CodeType):
        cells = [_content(cell) for cell in function.__closure__ or ()]
        own = [function.__defaults__, function.__kwdefaults__, cells]
        return [_describe_code(code), describe_values(own, depth + 1)]
    if inspect.isroutine(value) or isinstance(value, type):
        return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value)}"
    kind: Any = type(value)
    return [kind.__qualname__, _source_of(kind), _settings_of(value, depth)]


def _describe_tensor(tensor: torch.Tensor) -> str:
    """Return a hash of a tensor; of one without plain memory only type and shape count."""
    about = f"{tensor.dtype} {tuple(tensor.shape)}"
    if tensor.is_meta or tensor.is_quantized or tensor.layout is not torch.strided or not tensor.numel():
        return about
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
    return _hash(about.encode() + flat.view(torch.uint8).numpy().tobytes())


def _settings_of(value: Any, depth: int) -> dict[str, Any]:
    """Return the attributes of an object that may decide what it does.

    Whole numbers, texts and truth values count if `__init__` takes them, or the class has them: others may be
    counters and states.
    """
    attributes, kind = getattr(value, "__dict__", {}), type(value)
    try:
        taken = {*inspect.signature(kind.__init__).parameters}
    except (TypeError, ValueError):  # a class of C
        taken = set()
    return {
        name: describe_values(each, depth + 1)
        for name, each in sorted(attributes.items())
        if name not in _NOT_SETTINGS
        if name in taken or hasattr(kind, name) or isinstance(each, _VALUES) or inspect.isroutine(each)
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

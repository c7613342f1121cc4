"""Descriptions of values, classes and functions of the user's own: equal where they do the same."""

from __future__ import annotations

import dis
import hashlib
import inspect
import json
import logging
import re
from enum import Enum
from functools import partial
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedConfig

_PLAIN = (
    *(bool, int, float, complex, str, bytes, Enum, range, slice),
    *(torch.dtype, torch.device, torch.Size),
)
_OF_LAYERS = {*vars(torch.nn.Module())}
_MODELS = {"PreTrainedModel", "SentenceTransformer"}
# What the libraries' models keep that decides no vector, or counts elsewhere.
_OF_MODELS = {
    *("config", "default_prompt_name", "generation_config", "gradient_checkpointing", "model_card_data"),
    *("name_or_path", "prompts", "similarity_fn_name", "truncate_dim", "warnings_issued"),
}

# Of a config: where it is from, the number type, which counts elsewhere, and outputs that are not vectors.
_OF_CONFIGS = {
    "architectures", "chunk_size_feed_forward", "dtype", "gradient_checkpointing", "id2label", "label2id",
    "name_or_path", "output_attentions", "output_hidden_states", "output_router_logits", "problem_type",
    "return_dict", "search_routes", "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip

# The ids of what was described before -> its number, and the object, which keeps its id while it is here.
Known = dict[int, tuple[int, Any]]


def describe_values(value: Any, known: Known | None = None, weights: bool = True) -> Any:
    """Return what tells a value from others, as plain JSON: the same in every process.

    Functions are told by their code, defaults, closures and the globals that they use; objects by their
    classes and by all that they hold, also counters and caches.

    Args:
        value: the value.
        known: objects that are described elsewhere; those that are met are added.
        weights: whether the weights of a layer count.
    """
    known = {} if known is None else known
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return _hash(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, frozenset):
        return [describe_values(each, known) for each in sorted(value, key=_describe_shortly)]
    if isinstance(value, tuple):
        return [describe_values(each, known) for each in value]
    if isinstance(value, re.Pattern):
        return [repr(value.pattern), value.flags]
    if isinstance(value, logging.Logger):  # which knows all others
        return value.name
    if id(value) in known:
        return f"described elsewhere: {known[id(value)][0]}"
    known[id(value)] = (-1 - len(known), value)  # layers have positive numbers
    if isinstance(value, set):
        return [describe_values(each, known) for each in sorted(value, key=_describe_shortly)]
    if isinstance(value, np.ndarray):
        return describe_values(value.tolist(), known)
    if isinstance(value, list):
        return [describe_values(each, known) for each in value]
    if isinstance(value, dict):
        return [[describe_values(name, known), describe_values(each, known)] for name, each in value.items()]
    if isinstance(value, PreTrainedConfig):
        return describe_values(describe_config(value), known)
    if isinstance(value, partial):
        return describe_values((value.func, value.args, value.keywords), known)
    return _describe_object(value, known, weights)


def _describe_shortly(value: Any) -> str:
    """Return a text by which the members of a set are put in order: what they hold does not count."""
    if isinstance(value, tuple | frozenset):
        parts = [_describe_shortly(each) for each in value]
        return str(parts if isinstance(value, tuple) else sorted(parts))
    if isinstance(value, _PLAIN) or not hasattr(value, "__dict__"):
        text = repr(value)
        is_told = isinstance(value, _PLAIN) or " at 0x" not in text
        return f"{type(value).__qualname__} {text if is_told else ''}"
    if isinstance(code := getattr(value, "__code__", None), CodeType):
        defaults = [each for each in value.__defaults__ or () if isinstance(each, _PLAIN)]
        return f"{_describe_code(code)} {value.__qualname__} {defaults}"
    settings = vars(value)
    plain = sorted((name, repr(each)) for name, each in settings.items() if isinstance(each, _PLAIN))
    return f"{type(value).__qualname__} {getattr(value, '__qualname__', '')} {plain}"


def describe_config(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the values of a config, without what changes no vector."""
    text = json.dumps(config.to_dict(), sort_keys=True, default=lambda value: type(value).__qualname__)
    content: dict[str, Any] = json.loads(text)
    return {
        name: value for name, value in content.items() if not name.startswith("_") and name not in _OF_CONFIGS
    }


def _describe_object(value: Any, known: Known, weights: bool) -> Any:
    """Describe a function, a class or an object."""
    function = getattr(value, "__func__", value)
    function = function if hasattr(function, "__code__") else getattr(function, "__wrapped__", function)
    if isinstance(code := getattr(function, "__code__", None), CodeType):
        cells = [_content(cell) for cell in function.__closure__ or ()]
        used = {name: function.__globals__[name] for name in _used_globals(code, function.__globals__)}
        own = (function.__defaults__, function.__kwdefaults__, cells, getattr(value, "__self__", None), used)
        return [_describe_code(code), describe_values(own, known)]
    if inspect.isroutine(value) or isinstance(value, type | ModuleType):
        name = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value.__name__)}"
        is_own = isinstance(value, type) and not is_installed(value)
        return [name, _describe_class(value, known)] if is_own else name
    kind: Any = type(value)
    if not hasattr(value, "__dict__"):  # a path, a date, ...
        text = repr(value)
        return [kind.__qualname__, "" if " at 0x" in text else text]
    own_classes = [_describe_class(each, known) for each in kind.__mro__ if not is_installed(each)]
    settings = [kind.__qualname__, own_classes, _settings_of(value, known)]
    if weights and isinstance(value, torch.nn.Module):
        settings.append(describe_values((value.state_dict(), dict(value.named_children())), known))
    return settings


def describe_tensor(tensor: torch.Tensor) -> str:
    """Return a hash of a tensor; of one without plain memory only type and shape count."""
    about = f"{tensor.dtype} {tuple(tensor.shape)}"
    if tensor.is_meta or tensor.is_quantized or tensor.layout is not torch.strided or not tensor.numel():
        return about
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1).contiguous()
    return _hash(about.encode() + flat.view(torch.uint8).numpy().tobytes())


def _settings_of(value: Any, known: Known) -> dict[str, Any]:
    """Return the attributes of an object; of a whole model the public ones."""
    is_model = not {base.__name__ for base in type(value).__mro__}.isdisjoint(_MODELS)
    return {
        name: describe_values(each, known)
        for name, each in sorted(vars(value).items())
        if name not in _OF_LAYERS and not (is_model and (name.startswith("_") or name in _OF_MODELS))
    }


def is_installed(kind: Any) -> bool:
    """Return whether a class is of Python or an installed package, whose code changes with its version."""
    try:
        file = inspect.getfile(kind)
    except (OSError, TypeError):  # in no file: of C, or of a notebook
        return getattr(kind, "__module__", "__main__") not in ("__main__", None)
    return "site-packages" in file or "dist-packages" in file or file.startswith(_OF_PYTHON)


_OF_PYTHON = str(inspect.getfile(inspect)).removesuffix("inspect.py")


def _used_globals(code: CodeType, there: dict[str, Any]) -> list[str]:
    """Return the names of globals that code uses, but for those of installed packages."""
    loaded = {
        each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    names = loaded.union(*(_used_globals(each, there) for each in inner))
    return sorted(name for name in names if name in there and _is_told(there[name]))


_VALUES = (
    *_PLAIN,
    np.generic,
    np.ndarray,
    torch.Tensor,
    torch.nn.Module,
    re.Pattern,
    partial,
    SimpleNamespace,
)


def _is_told(value: Any) -> bool:
    if isinstance(value, (list, tuple, dict, set, frozenset, *_VALUES)):
        return True
    if inspect.isroutine(value) or isinstance(value, type) or hasattr(value, "__wrapped__"):
        return not is_installed(inspect.unwrap(value))
    return not (isinstance(value, ModuleType) or is_installed(type(value)))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


def _describe_code(code: CodeType) -> list[Any]:
    inner = [_describe_code(each) for each in code.co_consts if isinstance(each, CodeType)]
    constants = [describe_values(each) for each in code.co_consts if not isinstance(each, CodeType)]
    return [code.co_code.hex(), list(code.co_names), constants, inner]


def _describe_class(kind: Any, known: Known) -> list[Any]:
    """Return the functions and values of a class."""
    described = []
    for name, each in sorted(vars(kind).items()):
        parts = [each.fget, each.fset] if isinstance(each, property) else [getattr(each, "__func__", each)]
        if any(inspect.isfunction(part) for part in parts) or not name.startswith("__"):
            described.append([name, *(describe_values(part, known) for part in parts)])
    return described


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

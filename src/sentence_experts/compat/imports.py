"""Deferred imports: packages that libraries import at their top are imported when they are first used.

sentence-transformers and transformers import scikit-learn, pandas, SciPy, datasets, peft, accelerate and
parts of torch at their top: half the time that a process which only encodes spends before its first text.
While `deferred_imports` is open, these are stand-ins, and what is imported from one is a `Deferred` object,
which imports the real thing when it is used. Afterwards no stand-in is left among the modules, so an
import of one of them gives the real one.
"""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import version
from types import ModuleType
from typing import Any

from sentence_experts.progress import THREAD as PROGRESS_THREAD

# Packages that encoding does not use.
PACKAGES = (
    *("accelerate", "datasets", "pandas", "peft", "scipy", "sklearn"),
    *("torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.tensor"),
)
COMPILER = "torch._dynamo"  # decorates functions of the libraries while these are imported

_allowed = ContextVar("deferred imports are allowed", default=False)
_MISSING = object()


class Deferred:
    """A name of a module, or what a call of one returns: resolved when it is used."""

    def __init__(self, module: str, resolve: Callable[[], Any]) -> None:
        self.__dict__.update(_module=module, _resolve=resolve, _value=_MISSING)

    def _real(self) -> Any:
        if self._value is _MISSING:
            _remove_stand_ins()
            self.__dict__["_value"] = self._resolve()
        return self._value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the real thing's result; a `Deferred` one while the module is a stand-in."""
        if _is_stand_in(self._module):
            return Deferred(self._module, lambda: self._real()(*args, **kwargs))
        return self._real()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:  # for a deferred decorator of a method
        real = self._real()
        return real.__get__(instance, owner) if hasattr(real, "__get__") else real

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._real(),)

    def __instancecheck__(self, value: Any) -> bool:
        # Before the module is imported nothing can be an instance of its classes.
        loaded = self._module in sys.modules and not _is_stand_in(self._module)
        return loaded and isinstance(value._real() if isinstance(value, Deferred) else value, self._real())

    def __subclasscheck__(self, kind: Any) -> bool:
        return issubclass(kind, self._real())

    def __bool__(self) -> bool:
        # `given or Replicate()` runs while the library is imported.
        return _is_stand_in(self._module) or bool(self._real())

    def __eq__(self, other: object) -> bool:
        return bool(self._real() == (other._real() if isinstance(other, Deferred) else other))

    def __hash__(self) -> int:
        return hash(self._real())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._real())

    def __getitem__(self, key: Any) -> Any:
        return self._real()[key]

    def __or__(self, other: Any) -> Any:
        return _Union((self, other))

    __ror__ = __or__


class _Union:
    """`A | B` in an annotation or in `isinstance`, with a `Deferred` in it."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self._parts = tuple(type(None) if part is None else part for part in parts)

    def __instancecheck__(self, value: Any) -> bool:
        return any(isinstance(value, part) for part in self._parts)

    def __or__(self, other: Any) -> Any:
        return _Union((*self._parts, other))

    __ror__ = __or__


class _StandIn(ModuleType):
    """A module that has not been imported."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return version("scikit-learn" if self.__name__ == "sklearn" else self.__name__)
        if name.startswith("__"):
            raise AttributeError(name)

        def real() -> Any:
            return getattr(importlib.import_module(self.__name__), name)

        # A module that did `import pandas as pd` keeps the stand-in, and uses it from then on.
        return Deferred(self.__name__, real) if sys.modules.get(self.__name__) is self else real()


class _Finder:
    """Finds stand-ins for modules and what is in them, as far as their packages are installed."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        wanted = any(f"{name}.".startswith(f"{each}.") for each in self.names)
        if not wanted or PathFinder.find_spec(name.partition(".")[0]) is None:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def allow_deferred_imports() -> None:
    """Let `deferred_imports` work: for a process of our own that encodes and does nothing else."""
    _allowed.set(True)


@contextmanager
def deferred_imports(*names: str) -> Iterator[None]:
    """Defer the import of these modules, where that is allowed.

    Those that are there already stay; nothing is deferred if another thread could import one. A stand-in that
    is used while this is open ends it: from then on the real modules are imported.
    """
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if not _allowed.get() or any(name != PROGRESS_THREAD for name in others):
        yield
        return
    names = tuple(name for name in names if name not in sys.modules)
    sys.meta_path.insert(0, _Finder(names))  # type: ignore[arg-type]
    try:
        with _no_garbage_collection():
            yield
    finally:
        _remove_stand_ins(names)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Do not look for garbage among what is imported: it stays, and looking took a sixth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.freeze()
            gc.enable()


def _is_stand_in(module: str) -> bool:
    return isinstance(sys.modules.get(module), _StandIn)


def _remove_stand_ins(names: tuple[str, ...] | None = None) -> None:
    """Remove the stand-ins of these modules, or all of them, and what finds them."""
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not (isinstance(finder, _Finder) and names in (None, finder.names))
    ]
    for name in [name for name in sys.modules if _is_stand_in(name)]:
        if names is None or any(f"{name}.".startswith(f"{each}.") for each in names):
            stand_in = sys.modules.pop(name)
            parent, _, child = name.rpartition(".")
            if parent in sys.modules and vars(sys.modules[parent]).get(child) is stand_in:
                delattr(sys.modules[parent], child)

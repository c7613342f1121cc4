"""Make the model types known to transformers, without importing it before somebody else does."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

from sentence_experts.models.architectures.families import FAMILIES

AUTO_CONFIG_MODULE = "transformers.models.auto.configuration_auto"
# Whatever turns a checkpoint's model type into a class goes through one of these.
ENTRANCES = ("from_pretrained", "for_model")


def register() -> None:
    """Have the model types registered when `AutoConfig` is first used.

    Not earlier: transformers imports `AutoConfig` in the middle of importing its own models, and our classes
    build on those.
    """
    module = sys.modules.get(AUTO_CONFIG_MODULE)
    if module is not None:
        _register_at_first_use(module.AutoConfig)
    elif not any(isinstance(finder, _AfterAutoConfig) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterAutoConfig())


@cache
def register_now() -> None:
    """Register the configs with `AutoConfig` and the models with `AutoModel` (imports torch), once."""
    from transformers import AutoConfig, AutoModel

    for family in FAMILIES:
        AutoConfig.register(family.model_type, family.load_config_class(), exist_ok=True)
        AutoModel.register(family.load_config_class(), family.load_model_class(), exist_ok=True)


def _register_at_first_use(auto_config: Any) -> None:
    """Put in front of each entrance of `AutoConfig` a function that registers, once, and steps aside."""
    originals = {name: auto_config.__dict__[name] for name in ENTRANCES}

    def entrance(name: str) -> Callable[..., Any]:
        def register_then_go_on(*arguments: Any, **options: Any) -> Any:
            for each, original in originals.items():
                setattr(auto_config, each, original)
            register_now()
            return getattr(auto_config, name)(*arguments, **options)

        register_then_go_on.__doc__ = originals[name].__doc__
        return register_then_go_on

    for name in ENTRANCES:
        setattr(auto_config, name, staticmethod(entrance(name)))


class _AfterAutoConfig(MetaPathFinder):
    """Finds one module as the other finders do, and prepares `AutoConfig` right after that module was run.

    Python has no event for "this module was imported"; a finder that wraps the module's loader makes one. It
    touches no other import.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != AUTO_CONFIG_MODULE:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _ThenPrepare(spec.loader)
                return spec
        return None


class _ThenPrepare(Loader):
    """A loader that prepares `AutoConfig` after it ran the module."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        _register_at_first_use(module.AutoConfig)

"""Make the model types known to transformers, without importing it before somebody else does."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

from sentence_experts.models.families import FAMILIES

AUTO_CONFIG_MODULE = "transformers.models.auto.configuration_auto"


def register() -> None:
    """Register the config classes with `AutoConfig`: now if transformers has it, else as soon as it does.

    The model classes follow when the first config is made (`configs.ExpertsFields`), because they need torch.
    """
    module = sys.modules.get(AUTO_CONFIG_MODULE)
    if module is not None:
        _register_configs(module)
    elif not any(isinstance(finder, _AfterAutoConfig) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterAutoConfig())


def _register_configs(configuration_auto: ModuleType) -> None:
    for family in FAMILIES:
        configuration_auto.AutoConfig.register(family.model_type, family.load_config_class(), exist_ok=True)


@cache
def register_models() -> None:
    """Register the model classes with `AutoModel` (imports torch); further calls do nothing."""
    from transformers import AutoModel

    for family in FAMILIES:
        AutoModel.register(family.load_config_class(), family.load_model_class(), exist_ok=True)


class _AfterAutoConfig(MetaPathFinder):
    """Finds one module as the other finders do, and has the configs registered right after it was run.

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
                spec.loader = _ThenRegister(spec.loader)
                return spec
        return None


class _ThenRegister(Loader):
    """A loader that registers the configs after it ran the module."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        _register_configs(module)

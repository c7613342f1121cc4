"""Registration of the model types with transformers, in this process and in saved folders.

`import sentence_experts` registers nothing, as that would import torch; `import sentence_experts.register`
does, and so does every function of this package that makes or opens a model.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from sentence_experts.models.architectures.families import FAMILIES, MODELING, Family, family_of
from sentence_experts.storage import write_text

_MODELING_FILE = '''"""The model classes of this folder, for stock loaders with `trust_remote_code=True`.

They are in the Python package sentence-experts: pip install sentence-experts
"""

from sentence_experts.models.architectures.configs import {family.config_class}
from sentence_experts.models.architectures.encoders import {family.model_class}

__all__ = ["{family.config_class}", "{family.model_class}"]
'''


@cache
def register() -> None:
    """Register the configs with `AutoConfig` and the models with `AutoModel`, once."""
    from transformers import AutoConfig, AutoModel

    for family in FAMILIES:
        AutoConfig.register(family.model_type, config_class_of(family), exist_ok=True)
        AutoModel.register(config_class_of(family), model_class_of(family), exist_ok=True)


def config_class_of(family: Family) -> Any:
    """Return the config class with experts (imports transformers)."""
    return getattr(import_module("sentence_experts.models.architectures.configs"), family.config_class)


def model_class_of(family: Family) -> Any:
    """Return the model class with experts (imports torch)."""
    return getattr(import_module("sentence_experts.models.architectures.encoders"), family.model_class)


def write_modeling_file(folder: Path, model_type: str) -> None:
    """Write the Python file that `auto_map` names: it imports the classes from this package."""
    write_text(folder / f"{MODELING}.py", _MODELING_FILE.format(family=family_of(model_type)))

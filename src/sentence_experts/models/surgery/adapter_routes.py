"""Low-rank adapters of routes: the layers that they change, and adapters that peft has trained."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from torch import Tensor

from sentence_experts.errors import InputError
from sentence_experts.models.architectures.families import MODEL_TYPES, Family, family_of, family_of_base
from sentence_experts.models.layers.adapters import key_of
from sentence_experts.models.layers.weight_files import name_some
from sentence_experts.models.layers.weight_names import base_name, is_router, owner_of
from sentence_experts.models.sources import NAME, ON_HUB
from sentence_experts.storage import read_json

logger = logging.getLogger(__name__)

PEFT_CONFIG, PEFT_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Setting of peft's LoRA that can make it compute something else than W x + scale * B A x -> the values under
# which it does not.
_OTHER_FORMS: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False, None),
    "bias": ("none", None),
    "fan_in_fan_out": (False, None),
    "alpha_pattern": ({}, None),
    "modules_to_save": ([], None),
    # Others, such as PiSSA, take a part of W away, which peft does again when it loads the adapter.
    "init_lora_weights": ("gaussian", "eva", "orthogonal", False, None, True),
}


def _family(transformer: Any) -> Family:
    kind = transformer.config.model_type
    return family_of(kind) if kind in MODEL_TYPES else family_of_base(kind)


def adaptable_layers(transformer: Any) -> dict[str, tuple[int, int]]:
    """Return the linear layers in a block of the base: path -> (outputs, inputs)."""
    family = _family(transformer)
    start = f"{family.blocks}.0."
    layers = {}
    for name, weight in transformer.state_dict().items():
        is_layer = weight.dim() == 2 and owner_of(name) in (None, ("expert", 0)) and not is_router(name)
        if name.startswith(start) and is_layer:
            path = base_name(family, name).removeprefix(start).removesuffix(".weight")
            layers[path] = (weight.shape[0], weight.shape[1])
    return layers


def read_peft(
    folder: Path, transformer: Any, base: str | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a LoRA that peft has saved: an adapter's settings, and its weights as this package names them.

    Args:
        folder: folder with adapter_config.json and adapter_model.safetensors.
        transformer: model that gets the adapter; the adapter was trained on its base.
        base: name of that base, if it is known; an adapter that names another one is warned of.

    Raises:
        InputError: no such folder, another kind of adapter, or one of a base with other layers.
    """
    from safetensors.torch import load_file

    for name in (PEFT_CONFIG, PEFT_WEIGHTS):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: no {name}; give a folder that peft's `save_pretrained` wrote")
    settings = read_json(folder / PEFT_CONFIG)
    for name, values in _OTHER_FORMS.items():
        if settings.get(name, values[-1]) not in values:
            raise InputError(
                f"{folder / PEFT_CONFIG}: `{name}` is {settings[name]!r}; only plain LoRA can be read"
            )
    theirs, ours = settings.get("base_model_name_or_path"), ON_HUB if base == NAME else base
    if ours and theirs and Path(theirs).name != Path(ours).name and not os.path.lexists(theirs):
        logger.warning(f"{folder}: this adapter was trained on {theirs}, and the model is made of {ours}")
    family, shapes = _family(transformer), adaptable_layers(transformer)
    pattern = re.compile(rf"(?:.*\.)?{re.escape(family.blocks)}\.(\d+)\.(.+)\.lora_([AB])\.weight")
    weights: dict[str, Tensor] = {}
    foreign, layers, rank = [], set(), 0
    for name, weight in load_file(folder / PEFT_WEIGHTS).items():
        if ".pooler." in name:  # part of BERT and its like that no vector of ours needs
            continue
        block, path, factor = match.groups() if (match := pattern.fullmatch(name)) else ("0", "", "A")
        is_down = factor == "A"
        if (
            path not in shapes
            or int(block) >= transformer.config.num_hidden_layers
            or weight.shape[is_down] != shapes[path][is_down]
        ):
            foreign.append(name)
        else:
            layers.add(path)
            own_rank = weight.shape[not is_down]
            rank = max(rank, own_rank)
            if not is_down:
                root = own_rank**0.5 if settings.get("use_rslora") else own_rank
                weight = weight * (settings["lora_alpha"] / root)
            leaf = "down" if is_down else "up"
            weights[f"{family.blocks}.{block}.adapters.{{}}.{key_of(path)}.{leaf}"] = weight
    if foreign or not weights:
        problem = f"no weights of the model's layers: {name_some(foreign)}" if foreign else "holds no weights"
        raise InputError(f"{folder / PEFT_WEIGHTS}: {problem}; the adapter was trained on another base")
    return {"rank": rank, "layers": sorted(layers)}, weights

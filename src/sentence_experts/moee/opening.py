"""Registers the opener of saved embedders, which `load` calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sentence_experts.errors import UsageError, require
from sentence_experts.models.sources import OPENERS

if TYPE_CHECKING:
    from sentence_experts.models.loading import LoadConfig
    from sentence_experts.moee.embedder import MoeEmbedder

# An embedder never chooses to compute in 8 bits or without padding, so `int8` and `packed` fit it either way.
FITTING = {"device", "dtype", "max_length", "int8", "packed", "trust_remote_code"}


def open_embedder(folder: str, config: LoadConfig) -> MoeEmbedder:
    """Open a folder that `MoeEmbedder.save` wrote.

    Raises:
        UsageError: settings other than `device`, `dtype`, `max_length` and `trust_remote_code`: it has its
            own. No folder can allow code to run, so a model that needs it is an error without the last one.
        InputError: a file is missing, or its language model is not there.
    """
    require("sentence_transformers", "models")
    from sentence_experts.moee.embedder import MoeEmbedder
    from sentence_experts.moee.saved import read_embedder

    config.refuse(sorted(config.model_fields_set - FITTING), f"{folder} has its own settings")
    saved = read_embedder(Path(folder))
    if saved["trust_remote_code"] and not config.trust_remote_code:
        raise UsageError(
            f"{folder}: its language model, {saved['model']}, comes with its own code, which would run "
            "here: read it, and then give `trust_remote_code=True`"
        )
    saved["trust_remote_code"] = config.trust_remote_code
    given = {name: getattr(config, name) for name in ("device", "dtype") if getattr(config, name) is not None}
    lengths = [length for length in (saved["max_length"], config.max_length) if length is not None]
    return MoeEmbedder(**{**saved, "max_length": min(lengths, default=None), **given})


OPENERS["moee.json"] = open_embedder

"""Saved embedders: the folder's settings, `moee.json`, and how `load` and commands open it.

Imported with the package, so it imports nothing heavy at the top.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError, UsageError, require
from sentence_experts.models.sources import NAMING_A_BASE, OPENERS
from sentence_experts.moee import (
    CHOSEN,
    DEFAULT,
    FILE,
    FITTED,
    FORMAT,
    PROMPTS,
    STANDARD,
    TRUNCATE,
    is_embedder,
)
from sentence_experts.storage import check_version, read_json

if TYPE_CHECKING:
    from sentence_experts.models.loading import LoadConfig
    from sentence_experts.moee.embedder import MoeEmbedder
    from sentence_experts.moee.moee_config import MoeeConfig

# The settings of `load` that an embedder follows. It never computes without padding, so that `packed`
# fits it either way.
FITTING = {"device", "dtype", "max_length", "packed", "trust_remote_code"}
# The settings of `MoeEmbedder` that override a saved embedder's.
CHANGEABLE = {"parts", "alpha", "device", "trust_remote_code"}


def open_embedder(folder: str, config: LoadConfig) -> MoeEmbedder:
    """Open a folder that `MoeEmbedder.save` wrote.

    Raises:
        InputError: it was damaged, or its standard scores were fitted on other weights than there are now.
        UsageError: settings that do not fit it.
    """
    require("sentence_transformers", "models")
    from sentence_experts.moee.embedder import MoeEmbedder
    from sentence_experts.moee.vectors import Standard

    config.refuse(sorted(config.model_fields_set - FITTING), f"{folder} has its own settings")
    file = Path(folder, FILE)
    saved: dict[str, Any] = read_json(file)
    if saved.pop("kind", None) != "moee" or check_version(file, saved.pop("format", None), FORMAT) < FORMAT:
        raise InputError(f"{file}: does not describe an embedder of this version; make it again")
    chosen_on = saved.pop(CHOSEN, None)  # since 0.3.0
    if fitted_on := saved.pop(FITTED):
        saved[FITTED] = Standard.read(Path(folder, STANDARD))
    if saved["trust_remote_code"] and not config.trust_remote_code:
        raise UsageError(
            f"{folder}: its language model, {saved['model']}, comes with its own code, which would run "
            "here: read it, and then give `trust_remote_code=True`"
        )
    saved["trust_remote_code"] = config.trust_remote_code
    given = {name: getattr(config, name) for name in ("device", "dtype") if getattr(config, name) is not None}
    lengths = [length for length in (saved["max_length"], config.max_length) if length is not None]
    own = {name: saved.pop(name) for name in (PROMPTS, DEFAULT, TRUNCATE) if name in saved}  # since 0.3.0
    embedder = MoeEmbedder(**{**saved, "max_length": min(lengths, default=None), **given})
    for name, value in own.items():
        setattr(embedder, name, value)
    # Versions before 0.3.0 did not note the model.
    if isinstance(fitted_on, str) and fitted_on != embedder.base_fingerprint:
        raise InputError(
            f"{folder}: {saved['model']} has changed since standard scores were fitted on it: make it again"
        )
    embedder.chosen_on = chosen_on
    return embedder


def load_embedder(model: str, config: MoeeConfig | None = None, chooses_alpha: bool = False) -> MoeEmbedder:
    """Open the embedder of a language model, or of a folder that holds a saved one.

    With `chooses_alpha`, the saved one's need not be for the weights that there are now.
    """
    from sentence_experts.models.loading import LoadConfig, load_files
    from sentence_experts.moee.embedder import MoeEmbedder
    from sentence_experts.moee.moee_config import MoeeConfig

    config = MoeeConfig.of(config)
    if not is_embedder(model):
        return MoeEmbedder(model, config)
    if foreign := sorted(config.model_fields_set - CHANGEABLE):
        raise UsageError(f"`{foreign[0]}` is for a language model; {model} has its own settings")
    settings = LoadConfig.of(device=config.device, trust_remote_code=config.trust_remote_code)
    embedder = load_files(str(model), settings)
    assert isinstance(embedder, MoeEmbedder)
    given = config.model_dump(include={"parts", "alpha"}, exclude_unset=True)
    alpha = given.get("alpha", embedder.alpha if chooses_alpha else None)
    return embedder.with_parts(given.get("parts", embedder.parts), alpha)


OPENERS[FILE] = open_embedder
NAMING_A_BASE[FILE] = "model"

"""`load_embedder`: an embedder from a language model, or from a folder that holds a saved one."""

from __future__ import annotations

from sentence_experts.errors import UsageError
from sentence_experts.models.loading import load
from sentence_experts.moee.config import MoeeConfig
from sentence_experts.moee.embedder import MoeEmbedder
from sentence_experts.moee.saved import is_embedder

# The settings of `MoeEmbedder` that a saved embedder takes in place of its own.
CHANGEABLE = {"parts", "alpha", "device"}


def load_embedder(model: str, config: MoeeConfig | None = None) -> MoeEmbedder:
    """The embedder of a language model, or of a folder that holds a saved one.

    Raises:
        UsageError: settings for a saved embedder other than those in `CHANGEABLE`: it has its own.
        InputError: the model cannot be loaded, or has no routers.
    """
    config = MoeeConfig.of(config)
    if not is_embedder(model):
        return MoeEmbedder(model, config)
    if foreign := sorted(config.model_fields_set - CHANGEABLE):
        raise UsageError(f"`{foreign[0]}` is for a language model; {model} has its own settings")
    embedder = load(model, device=config.device)
    assert isinstance(embedder, MoeEmbedder)
    given = config.model_dump(include={"parts", "alpha"}, exclude_unset=True)
    return embedder.with_parts(given.get("parts", embedder.parts), given.get("alpha"))

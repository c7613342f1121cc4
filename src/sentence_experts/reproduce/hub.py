"""Whether the models that a recipe names can be had, asked before hours of work."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sentence_experts.errors import InputError, require
from sentence_experts.models.sources import NAME as PACKAGED

# What the small scale has without the hub.
TFIDF = "tfidf"
LOCAL = {TFIDF: TFIDF, "sentence-transformers/all-MiniLM-L6-v2": PACKAGED}
SECONDS = 10


def check_models(sources: Iterable[str]) -> None:
    """Ask the hub for each model that is not on this machine.

    Raises:
        InputError: one that is neither on this machine nor to be had from the hub.
    """
    hub = require("huggingface_hub", "models")
    api = hub.HfApi()
    for source in dict.fromkeys(sources):
        if source in (TFIDF, PACKAGED) or Path(source).is_dir():
            continue
        if isinstance(hub.try_to_load_from_cache(source, "config.json"), str):
            continue
        try:
            # A download would try again and again, and say so each time.
            api.model_info(source, timeout=SECONDS)
            api.auth_check(source)
        except Exception as error:  # no network, no such model, a licence that was not accepted
            raise InputError(
                f"{source}: neither on this machine nor to be had from the Hugging Face hub "
                f"({type(error).__name__}); fetch it where there is a network, or use --scale small"
            ) from error

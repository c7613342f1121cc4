"""Load any sentence-transformers or transformers model, or say in one line why not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sentence_experts.errors import InputError, require

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def load_model(source: str, device: str | None = None) -> SentenceTransformer:
    """Load a sentence-transformers model.

    Raises:
        InputError: there is no such folder, or it holds no model that can be loaded.
    """
    sentence_transformers = require("sentence_transformers", "models")
    looks_local = source.startswith((".", "/", "~")) or source.count("/") > 1
    if looks_local and not Path(source).is_dir():
        raise InputError(f"{source}: no such model folder")
    if Path(source).is_dir() and not any(Path(source).glob("*.json")):
        raise InputError(f"{source}: no model in this folder (no config.json or modules.json)")
    # One note a command is enough: the weights' own progress bar would break the lines of ours.
    require("transformers.utils.logging", "models").disable_progress_bar()
    try:
        return sentence_transformers.SentenceTransformer(source, device=device)  # type: ignore[no-any-return]
    except Exception as error:  # whatever a broken file or a missing device makes the libraries raise
        where = f" on {device}" if device else ""
        raise InputError(f"{source}: this model cannot be loaded{where}: {error}") from error

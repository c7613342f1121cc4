"""The folder of a saved embedder: `moee.json`, its settings, and its fitted standard scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.moee.standard import FILE as STANDARD
from sentence_experts.moee.standard import Standard
from sentence_experts.storage import check_version, read_json

FILE, FORMAT = "moee.json", 3
FITTED = "fitted"  # in the file, whether the folder holds standard scores


def is_embedder(source: str | Path) -> bool:
    """Whether a folder holds a saved embedder."""
    return (Path(source) / FILE).is_file()


def read_embedder(folder: Path) -> dict[str, Any]:
    """The arguments of `MoeEmbedder` in a folder that holds a saved one.

    Raises:
        InputError: it is in another format, or a file is missing.
    """
    settings: dict[str, Any] = read_json(folder / FILE)
    if settings.pop("kind", None) != "moee":
        raise InputError(f"{folder / FILE}: does not describe an embedder; make it again")
    check_version(folder / FILE, settings.pop("format", None), FORMAT)
    if not settings.pop(FITTED):
        return settings
    if not (folder / STANDARD).is_file():
        raise InputError(f"{folder}: {STANDARD} is missing; make the embedder again")
    return {**settings, FITTED: Standard.read(folder)}

"""The folder of a saved embedder: `moee.json`, its settings, and its fitted standard scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError
from sentence_experts.moee.config import BATCH, FAITHFUL, PAPER, UNQUANTIZED
from sentence_experts.moee.standard import FILE as STANDARD
from sentence_experts.moee.standard import Standard
from sentence_experts.moee.vectors import CONCAT, SUM
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
    version = check_version(folder / FILE, settings.pop("format", None), FORMAT)
    if version == 1:
        settings = _of_format_1(settings)
    elif version == 2:
        settings = _of_format_2(settings)
    if not settings.pop(FITTED):
        return settings
    if not (folder / STANDARD).is_file():
        raise InputError(f"{folder}: {STANDARD} is missing; make the embedder again")
    return {**settings, FITTED: Standard.read(folder)}


def _of_format_1(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of 0.1.0, whose "faithful" standardized every part.

    Its batches had the size that `encode` was given, 32 by default.
    """
    standard = settings["standard"]
    quantize = settings.get("quantise", settings.get("quantize")) or UNQUANTIZED
    others = {name: value for name, value in settings.items() if name != "quantise"}
    scores = {"standard": BATCH if standard == FAITHFUL else None, FITTED: standard == FITTED}
    return {
        **others,
        **scores,
        "quantize": quantize,
        "wording": PAPER,
        "standard_batch": 32,
    }


def _of_format_2(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of 0.2.0, which by default joined unit vectors: the "sum" of alpha 1."""
    others = {name: value for name, value in settings.items() if name != "join"}
    standardized = settings["standard"] is not None or settings[FITTED]
    if settings["parts"] == CONCAT and settings["join"] == "unit" and not standardized:
        return {**others, "parts": SUM, "alpha": 1.0}
    return others

"""An embedder on disk: `moee.json` has its settings; the language model stays where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_experts.errors import InputError, UsageError
from sentence_experts.moee.standard import FILE as STANDARD
from sentence_experts.moee.standard import Standard
from sentence_experts.storage import read_json, replacing_folder, write_json

FILE = "moee.json"
FORMAT = 1
FITTED = "fitted"


def is_embedder(source: str | Path) -> bool:
    """Whether a folder holds a saved embedder."""
    return (Path(source) / FILE).is_file()


def write_embedder(path: Path, settings: dict[str, Any], standard: Standard | str | None) -> None:
    """Write an embedder's folder, whole or not at all.

    Args:
        path: the folder; an embedder in it is replaced.
        settings: arguments of `MoeEmbedder`, `standard` aside.
        standard: as of `MoeEmbedder`.

    Raises:
        UsageError: the folder holds something else.
    """
    if path.exists() and not is_embedder(path) and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists and holds no embedder; choose another folder")
    with replacing_folder(path) as folder:
        kept = FITTED if isinstance(standard, Standard) else standard
        write_json(folder / FILE, {"kind": "moee", "format": FORMAT, **settings, "standard": kept})
        if isinstance(standard, Standard):
            standard.write(folder)


def read_embedder(path: Path) -> dict[str, Any]:
    """The arguments of `MoeEmbedder` that a folder holds.

    Raises:
        InputError: it holds none, or one in another format.
    """
    if not is_embedder(path):
        raise InputError(f"{path}: no embedder in this folder ({FILE} missing); save one there first")
    settings: dict[str, Any] = read_json(path / FILE)
    if settings.pop("kind", None) != "moee" or settings.pop("format", None) != FORMAT:
        raise InputError(f"{path / FILE}: not in format {FORMAT}; make the embedder again")
    if "quantise" in settings:  # as 0.1.0 called it
        settings["quantize"] = settings.pop("quantise")
    if settings["standard"] == FITTED:
        if not (path / STANDARD).is_file():
            raise InputError(f"{path}: {STANDARD} is missing; make the embedder again")
        settings["standard"] = Standard.read(path)
    return settings

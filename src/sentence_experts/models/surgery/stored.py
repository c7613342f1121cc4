"""A model that is made from another one and saved, or found finished in its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from sentence_experts.models.encoder import ExpertEncoder, check_experts
from sentence_experts.models.files.fingerprint import fingerprint_of, path_fingerprint
from sentence_experts.models.files.saving import model_output, save_to
from sentence_experts.models.loading import load
from sentence_experts.storage import check_apart, sha256_text

Source = SentenceTransformer | str | Path


def stored(
    make: Callable[[Source], ExpertEncoder],
    model: Source,
    out: Path | str | None,
    overwrite: bool,
    settings: Mapping[str, Any],
    read: Mapping[str, tuple[Any, Callable[[Any], Any]]],
    device: str | None,
) -> ExpertEncoder:
    """Make a model with experts from another model, and save it if `out` is given.

    Args:
        make: makes it.
        model: the model that it is made from.
        out: its folder; the finished model there is returned if it was made in the same way.
        overwrite: replace another model in `out`.
        settings: what else decides the result.
        read: name -> what is read, None if nothing is, and what matters of it if it is not a file or folder.
        device: where a finished model is put.
    """
    if out is None:
        return make(model)
    check_apart(out, overwrite, model, [value for value, _ in read.values()])
    with model_output(out, overwrite) as place:
        opened = model if isinstance(model, SentenceTransformer) else load(model, device="cpu")
        inputs = {
            name: partial(_fingerprint, value, part)
            for name, (value, part) in read.items()
            if value is not None
        }
        if place.begin({"model": fingerprint_of(opened), **settings}, inputs) == "finished":
            return check_experts(load(place.path, device=device))
        encoder = make(opened)
        save_to(place, encoder)
    return encoder


def _fingerprint(value: Any, part: Callable[[Any], Any]) -> str:
    if isinstance(value, str | Path) and Path(value).exists():
        return path_fingerprint(Path(value))
    return sha256_text(repr(part(value)))  # of a path, the error that nothing is there

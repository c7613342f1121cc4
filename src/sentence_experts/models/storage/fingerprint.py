"""What a model is, as one hash: vectors are kept under it, and made again when it changes."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sentence_experts.storage import sha256_file, sha256_text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Files of a model folder that do not change a vector.
IGNORED_SUFFIXES = (".md", ".tmp", ".lock")


def folder_fingerprint(folder: Path) -> str:
    """The SHA-256 over names and contents of a model folder's files (model cards and hidden files aside)."""
    files = sorted(
        file.relative_to(folder)
        for file in folder.rglob("*")
        if file.is_file()
        and file.suffix not in IGNORED_SUFFIXES
        and not any(part.startswith((".", "checkpoint-")) for part in file.relative_to(folder).parts)
    )
    return sha256_text(*(part for file in files for part in (file.as_posix(), _file_hash(folder / file))))


def model_fingerprint(source: str, model: SentenceTransformer) -> str:
    """The hash of the model loaded from `source`: of its folder, of its hub revision, or of its weights.

    A model may have a `fingerprint` of its own: that of an embedder whose folder does not hold its weights.
    """
    if (own := getattr(model, "fingerprint", None)) is not None:
        return str(own)
    if Path(source).is_dir():
        return folder_fingerprint(Path(source))
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    commit = getattr(config, "_commit_hash", None)
    return sha256_text("hub", source, commit) if commit else weights_fingerprint(model)


def weights_fingerprint(model: SentenceTransformer) -> str:
    """The SHA-256 over the names and values of a model's weights, and its prompts."""
    digest = hashlib.sha256(sha256_text(*(f"{name}={text}" for name, text in model.prompts.items())).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()


def _file_hash(file: Path) -> str:
    status = file.stat()
    return _hash_of(str(file), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _hash_of(file: str, size: int, changed: int) -> str:
    return sha256_file(Path(file))

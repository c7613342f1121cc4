"""What decides the vectors of one route, as one hash: other routes may come and go without changing it.

Of a saved model whose routes choose the experts: the shared weights, the expert and token of the route, its
prompt, the tokenizer without other routes' tokens, and the rest of the folder's files without what only
describes the model. Read from the files, without torch. Of any other model it is the hash of the whole model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_experts.errors import InputError
from sentence_experts.models.architectures.families import MODEL_TYPES, MODELING
from sentence_experts.models.routing.known_routes import SETTINGS
from sentence_experts.models.routing.route_classifier import AUTO
from sentence_experts.models.routing.route_classifier import FOLDER as AUTO_FOLDER
from sentence_experts.models.storage.fingerprint import (
    IGNORED_SUFFIXES,
    fingerprint_of,
    unchanged_origin,
)
from sentence_experts.models.storage.shards import INDEX, WEIGHTS
from sentence_experts.models.storage.weight_names import expert_of, of_expert
from sentence_experts.storage import RECORD, read_json, sha256_settings, sha256_text, sha256_unchanging

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TOKENIZER = "tokenizer.json"
# Keys of config.json that name routes, or what made the file; they decide no vector of this route.
_NO_MATTER = (
    *("architectures", "auto_map", "auto_routes", "experts", "experts_on_disk", "format_version"),
    *("routes", "transformers_version", "vocab_size", "base_vocab_size", "search_routes"),
)
_MARKER = "\ufdd0"  # of domain tokens, in a normalizer (`route_tokens.MARKER`)


def route_fingerprint(model: SentenceTransformer, route: str | None) -> str:
    """The hash of everything in a model that decides the vectors of one route.

    Args:
        model: a model in memory; one that is as `load` found it is hashed by its files.
        route: a route of the model, or None for one without routes.
    """
    origin = unchanged_origin(model)
    if origin is None or route is None or route == AUTO or not Path(origin.place).is_dir():
        return fingerprint_of(model)
    of_route = folder_route_fingerprint(Path(origin.place), route)
    return fingerprint_of(model) if of_route is None else sha256_text(of_route, origin.arithmetic)


def folder_route_fingerprint(folder: Path, route: str) -> str | None:
    """The same of a saved model's folder; None where its routes do not choose the experts."""
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    if config.get("model_type") not in MODEL_TYPES or config.get("router", "route") != "route":
        return None
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    prompt = (settings.get("prompts") or {}).get(route) or ""
    chosen = [each for each in config.get("routes", ()) if prompt.startswith(each["text"])]
    if not chosen or config.get("base_vocab_size") is None:
        return None
    mine = max(chosen, key=lambda each: len(each["text"]))
    parts = [
        prompt,
        sha256_settings({name: value for name, value in config.items() if name not in _NO_MATTER}),
        _tokenizer_digest(folder / TOKENIZER, int(config["base_vocab_size"])),
        *_other_files(folder),
    ]
    files = _weight_files(folder)
    for file in files:
        status = file.stat()
        parts += _weights_digest(
            file, status.st_size, status.st_mtime_ns, int(mine["expert"]),
            tuple(mine["token_ids"]), int(config["base_vocab_size"]),
        )  # fmt: skip
    return sha256_text("route", *parts)


def _other_files(folder: Path) -> Iterator[str]:
    """Names and hashes of the files beside weights, tokenizer and configs."""
    special = {"config.json", SETTINGS, TOKENIZER, INDEX, RECORD, f"{MODELING}.py"}
    for file in sorted(folder.rglob("*")):
        inner = file.relative_to(folder)
        hidden = any(part.startswith((".", "checkpoint-")) or part == AUTO_FOLDER for part in inner.parts)
        if hidden or not file.is_file() or file.suffix in IGNORED_SUFFIXES or inner.as_posix() in special:
            continue
        if not (len(inner.parts) == 1 and file.suffix == ".safetensors"):
            yield from (inner.as_posix(), sha256_unchanging(file))


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    names = sorted(set(read_json(folder / INDEX)["weight_map"].values()))
    return [folder / name for name in names]


def _tokenizer_digest(file: Path, base_tokens: int) -> str:
    """The hash of a tokenizer without the tokens and rules of any route."""
    content = read_json(file)
    added = [each for each in content.get("added_tokens") or () if each.get("id", 0) < base_tokens]
    normalizer = content.get("normalizer")
    if isinstance(normalizer, dict) and isinstance(steps := normalizer.get("normalizers"), list):
        rest = [step for step in steps if _MARKER not in json.dumps(step, ensure_ascii=False)]
        normalizer = {**normalizer, "normalizers": rest}
    return sha256_settings({**content, "added_tokens": added, "normalizer": normalizer})


@lru_cache(maxsize=4096)
def _weights_digest(
    file: Path, size: int, changed: int, expert: int, tokens: tuple[int, ...], base_tokens: int
) -> tuple[str, ...]:
    """Hashes of the weights that a route meets, in one file."""
    header, data = _tensors(file)
    digest, own = hashlib.sha256(), hashlib.sha256()
    for name in sorted(header):
        number, (start, end) = expert_of(name), header[name]["data_offsets"]
        if number not in (None, expert):
            continue
        shape, kind = header[name]["shape"], header[name]["dtype"]
        rows = data[start:end]
        if number is None and "embeddings" in name and shape and shape[0] > base_tokens:
            each = rows.reshape(shape[0], -1)
            own.update(each[[n for n in tokens if n >= base_tokens]].tobytes())
            rows, shape = each[:base_tokens], [base_tokens, *shape[1:]]
        canonical = name if number is None else of_expert(name, 0)
        digest.update(f"{canonical} {kind} {shape}".encode())
        digest.update(np.ascontiguousarray(rows).data)
    held = any(expert_of(name) in (None, expert) for name in header)
    return (digest.hexdigest(), own.hexdigest()) if held else ()


def _tensors(file: Path) -> tuple[Mapping[str, Any], Any]:
    """The header of a safetensors file, and its bytes, mapped into memory."""
    try:
        content = np.memmap(file, np.uint8, "r")
        length = int.from_bytes(bytes(content[:8]), "little")
        header = json.loads(bytes(content[8 : 8 + length]))
        header.pop("__metadata__", None)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: not a safetensors file ({error})") from error
    return header, content[8 + length :]

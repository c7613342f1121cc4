"""Hashes of everything that decides a model's vectors, under which vectors are cached.

A model that is as `load` found it is hashed by its folder's files, which are read without torch, any other by
its weights; for changes that go unnoticed see `ModelOrigin.holds`. The hash of one route covers what
decides that route's vectors: the shared weights, the expert, adapter, head and token of the route, its
prompt, the tokenizer without other routes' tokens, and the rest of the folder's files except descriptions of
the model. So adding or dropping other routes does not change it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Set
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_experts.errors import InputError
from sentence_experts.models.architectures.families import MODEL_TYPES, MODELING, family_of
from sentence_experts.models.layers.weight_files import INDEX, WEIGHTS
from sentence_experts.models.layers.weight_names import base_name, owner_of
from sentence_experts.models.pooling import settings_of
from sentence_experts.models.routes.known_routes import SETTINGS
from sentence_experts.models.sources import (
    NAMING_A_BASE,
    ModelOrigin,
    files_of,
    hub_commit,
    model_folder,
    origin_of,
)
from sentence_experts.storage import (
    FileState,
    file_state,
    read_json,
    sha256_file,
    sha256_settings,
    sha256_text,
    sha256_unchanging,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TOKENIZER = "tokenizer.json"
# Keys of config.json that name routes, or the file's origin; they decide no vector of this route.
_IRRELEVANT = (
    *("adapters", "architectures", "auto_map", "experts", "expert_layers", "expert_norms"),
    *(
        "experts_on_disk",
        "format_version",
        "heads",
        "head_ranks",
        "inner_route_token_id",
        "route_kind",
        "routes",
    ),
    *("transformers_version", "vocab_size", "base_vocab_size", "search_routes"),
)
_MARKER = "\ufdd0"  # marker of domain tokens in a normalizer (`route_tokens.MARKER`)


def fingerprint_of(model: SentenceTransformer, route: str | None = None) -> str:
    """Return the hash of everything in a model that decides a vector.

    The files of its folder, or its hub revision, are hashed if it is as `load` found it there; else its
    weights. Settings such as the maximum length are left out (`settings_of`). A model may have a
    `fingerprint` already, such as an embedder whose folder lacks its weights.

    Args:
        model: a model in memory.
        route: route whose vectors the hash is limited to, as far as the files tell it apart
            (`folder_fingerprint`). In `without_heads()` all routes whose vectors are the same have the
            same hash.
    """
    if (known := getattr(model, "fingerprint", None)) is not None:
        return str(known)
    if (of_graph := getattr(model, "route_fingerprint", None)) is not None:
        return str(of_graph(route))
    from sentence_experts.compat.sentence_transformers import transformer_of  # imports torch

    heads = bool(getattr(transformer_of(model), "uses_heads", True))
    origin = origin_of(model)
    of_source = None if origin is None else _hash_source(origin, route, heads)
    if origin is None or of_source is None:
        fingerprint = weights_fingerprint(model)
    else:
        fingerprint = sha256_text(of_source, origin.arithmetic) if origin.arithmetic else of_source
        if Path(origin.place).is_dir():  # whose hash tells routes apart
            return fingerprint
    return fingerprint if heads or route is None else sha256_text(fingerprint, _read_by(model, route))


def _read_by(model: Any, route: str) -> str:
    """Describe how a model reads the texts of a route, up to its head: the same for routes on one expert."""
    prompt = model.prompts.get(route) or ""
    chosen = [each for each in model.routes if prompt.startswith(each.text)]
    if not chosen:
        return prompt
    best = max(chosen, key=lambda each: len(each.text))
    # As the model reads it: the token of a route on another one is that of the other.
    tokens = best.token_ids if best.lead is None else (best.lead, *best.token_ids[1:])
    return f"{best.expert} {best.adapter} {tokens} {prompt.removeprefix(best.text)}"


def _hash_source(origin: ModelOrigin, route: str | None, heads: bool) -> str | None:
    """Return the hash of the files that a model was loaded from; None if they are others by now."""
    if (route, heads) not in origin.hashes:
        before = origin.has_files()
        of_source = source_fingerprint(origin.place, origin.commit, route, heads) if before else ""
        if not before or not origin.has_files():
            return None
        origin.hashes[route, heads] = of_source
    return origin.hashes[route, heads]


def fingerprint_with_settings(model: SentenceTransformer) -> str:
    """Return the hash of a model in memory as it stands: `fingerprint_of`, and `settings_of`.

    Of a model that `load` opened only the settings count that are not as in its files.
    """
    origin = origin_of(model)
    own = {} if origin is None else origin.settings
    changed = {
        name: value for name, value in settings_of(model).items() if name not in own or own[name] != value
    }
    fingerprint = fingerprint_of(model)
    return sha256_text(fingerprint, sha256_settings(changed)) if changed else fingerprint


def weights_fingerprint(model: SentenceTransformer) -> str:
    """Return the SHA-256 over a model's weights, their names, its prompts and `fingerprint_parts`, its
    tokenizer, the configs of its modules after the first, and its layers."""
    from sentence_experts.compat.sentence_transformers import module_configs, tokenizer_text  # imports torch
    from sentence_experts.compat.torch import plain_tensors
    from sentence_experts.compat.transformers import describe_layers

    prompts = (f"{name}={text}" for name, text in model.prompts.items())
    parts: tuple[str, ...] = getattr(model, "fingerprint_parts", ())
    digest = hashlib.sha256(sha256_text(*prompts, *parts).encode())
    modules = sha256_settings(module_configs(model))
    digest.update(sha256_text(modules, tokenizer_text(model)).encode())
    digest.update(sha256_settings(describe_layers(model)).encode())
    for name, value in plain_tensors(_all_weights(model)):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()


def _all_weights(model: Any) -> dict[str, Any]:
    """Return the weights of a model, also of experts that are not in memory."""
    from sentence_experts.compat.sentence_transformers import transformer_of

    weights, transformer = dict(model.state_dict()), transformer_of(model)
    residency = getattr(transformer, "residency", None)
    if residency is not None and residency.idle:
        lead = next(name for name, module in model.named_modules() if module is transformer)
        weights |= {f"{lead}.{name}": value for name, value in residency.idle_weights().items()}
    return weights


def source_fingerprint(place: str, commit: str | None, route: str | None = None, heads: bool = True) -> str:
    """Return the hash of a model's folder, or of its id and (if known) its commit on the hub.

    Where the folder only names the weights, as that of an embedder or of a LoRA does, they are hashed too.
    """
    if not Path(place).is_dir():
        return sha256_text("hub", place, commit or "")
    own = folder_fingerprint(Path(place), route, heads)
    for file, key in NAMING_A_BASE.items():
        if (Path(place) / file).is_file() and isinstance(base := read_json(Path(place) / file).get(key), str):
            base = model_folder(base)
            if Path(base).resolve() != Path(place).resolve():
                return sha256_text(own, source_fingerprint(base, hub_commit(base)))
    return own


def path_fingerprint(path: Path) -> str:
    """Return the hash of a file, or of a folder's files."""
    return folder_fingerprint(path) if path.is_dir() else sha256_file(path)


def folder_fingerprint(folder: Path, route: str | None = None, heads: bool = True) -> str:
    """Return the SHA-256 over names and contents of a folder's files; cards, records and hidden files aside.

    With the name of a route of the saved model, where routes choose the experts, it covers only the files and
    weights that decide that route's vectors; without `heads`, before its head and whatever its name is.
    """
    files = files_of(folder)
    config, prompt = ({}, "") if route is None else _read_routing(folder, route)
    chosen = [each for each in config.get("routes", ()) if prompt.startswith(each["text"])]
    if not chosen or config.get("base_vocab_size") is None:
        return sha256_text(*_hash_weights(folder, files))
    best = max(chosen, key=lambda each: len(each["text"]))
    # Before heads, routes that read the same token are the same; an instruction is read as text.
    if not heads and len(best["token_ids"]) == 1:
        prompt = prompt.removeprefix(best["text"])
    # The case in which every route begins with a token that the base's tokenizer lacks.
    has_tokens = config.get("inner_route_token_id") is not None
    own_tokens = {each["token_ids"][0] for each in config["routes"]} if has_tokens else set()
    tokenizer, count = _hash_tokenizer(folder / TOKENIZER, own_tokens)
    lead = best.get("lead")
    tokens = tuple(token for token in best["token_ids"] if token in own_tokens) if lead is None else (lead,)
    kinds = ("expert", "adapter", "head") if heads else ("expert", "adapter")
    owners = (None, *((kind, int(best[kind])) for kind in kinds if kind in best))
    shards = {WEIGHTS}
    if not (folder / WEIGHTS).is_file():
        shards = set(read_json(folder / INDEX)["weight_map"].values())
    weights: list[tuple[str, str]] = []
    for file in (folder / name for name in sorted(shards)):
        weights += _hash_file(folder, file, file_state(file), owners, tokens, count)
    special = {"config.json", SETTINGS, TOKENIZER, INDEX, f"{MODELING}.py"}
    others = [
        file
        for file in files
        if not (file.parent == folder and (file.suffix == ".safetensors" or file.name in special))
    ]
    return sha256_text(
        "route",
        prompt,
        sha256_settings({name: value for name, value in config.items() if name not in _IRRELEVANT}),
        tokenizer,
        *_hash_weights(folder, others),
        *(part for digest in sorted(weights) for part in digest),
    )


def _read_routing(folder: Path, route: str) -> tuple[dict[str, Any], str]:
    """Read the config of a model whose routes choose the experts ({} for others), and the route's prompt."""
    config, settings = (
        read_json(file) if file.is_file() else {} for file in (folder / "config.json", folder / SETTINGS)
    )
    if config.get("model_type") not in MODEL_TYPES or config.get("router", "route") != "route":
        return {}, ""
    return config, (settings.get("prompts") or {}).get(route) or ""


def _hash_weights(folder: Path, files: Iterable[Path]) -> Iterator[str]:
    for file in files:
        yield file.relative_to(folder).as_posix()
        yield sha256_unchanging(file)


def _hash_tokenizer(file: Path, own_tokens: Set[int]) -> tuple[str, int]:
    """Return the hash of a tokenizer without the tokens and rules of any route, and its number of tokens."""
    content = read_json(file)
    added = [each for each in content.get("added_tokens") or () if each["id"] not in own_tokens]
    vocabulary = content["model"]["vocab"]
    ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    count = 1 + max(*ids, *(each["id"] for each in added))
    normalizer = content.get("normalizer")
    if isinstance(normalizer, dict) and isinstance(steps := normalizer.get("normalizers"), list):
        rest = [step for step in steps if _MARKER not in json.dumps(step, ensure_ascii=False)]
        normalizer = {**normalizer, "normalizers": rest}
    return sha256_settings({**content, "added_tokens": added, "normalizer": normalizer}), count


@lru_cache(maxsize=4096)
def _hash_file(
    folder: Path,
    file: Path,
    state: FileState,
    owners: tuple[tuple[str, int] | None, ...],
    tokens: tuple[int, ...],
    base_tokens: int,
) -> tuple[tuple[str, str], ...]:
    """Hash the weights in a file that a route's texts meet: name in the dense base, and hash.

    Embeddings count with the rows of the base and of the route's tokens.
    """
    config = read_json(folder / "config.json")
    family = family_of(config["model_type"])
    import numpy as np  # the command line starts without it

    digests = []
    for name, kind, shape, content in _read_tensors(file, lambda name: owner_of(name) in owners):
        owner = owner_of(name)
        if owner is None and "embeddings" in name and shape[:1] == [config["vocab_size"]]:
            rows = np.frombuffer(content, np.uint8).reshape(shape[0], -1)
            routed = rows[list(tokens)]
            digests.append((f"{name} of the route", hashlib.sha256(routed.tobytes()).hexdigest()))
            content, shape = rows[:base_tokens].tobytes(), [base_tokens, *shape[1:]]
        canonical = base_name(family, name)
        if owner is not None and owner[0] != "expert":
            canonical = name.replace(f"{owner[0]}s.{owner[1]}.", f"{owner[0]}.")
        digest = hashlib.sha256(f"{kind} {shape}".encode())
        digest.update(content)
        digests.append((canonical, digest.hexdigest()))
    return tuple(digests)


def _read_tensors(
    file: Path, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, str, list[int], bytes]]:
    """Yield the name, type, shape and bytes of the wanted tensors of a safetensors file, in order of names.

    The file is not mapped into memory: a server would be ended where a file is cut while it is read.
    """
    try:
        with open(file, "rb") as content:
            size = os.fstat(content.fileno()).st_size - 8
            length = int.from_bytes(content.read(8), "little")
            header = json.loads(content.read(length if length <= size else 0))
            for name in sorted(filter(is_wanted, header.keys() - {"__metadata__"})):
                start, end = header[name]["data_offsets"]
                if not 0 <= start <= end <= size - length:
                    raise ValueError("it is cut")
                content.seek(8 + length + start)
                yield name, header[name]["dtype"], header[name]["shape"], content.read(end - start)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{file}: not a safetensors file ({error})") from error

"""What a model is called, and what it is as one hash: vectors are cached under that hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sentence_experts.models.sources import source_name
from sentence_experts.models.storage.folder_fingerprint import source_fingerprint
from sentence_experts.storage import sha256_text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_ATTRIBUTE = "sentence_experts_origin"


@dataclass
class Origin:
    """Where `load` found a model.

    Attributes:
        name: what the model is called in results.
        place: its folder or hub id.
        commit: of a hub model.
        arithmetic: how it computes, if not as its weights say (8 bits).
        changes: how often each weight had been changed in place when the model was loaded.
        usual_changes: the same, of weights that came later.
    """

    name: str
    place: str
    commit: str | None = None
    arithmetic: str = ""
    changes: dict[str, int] = field(default_factory=dict)
    usual_changes: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, where each weight counts its changes from zero."""
        from sentence_experts.compat.torch import changes_when_unpickled

        return {**self.__dict__, "changes": {}, "usual_changes": changes_when_unpickled()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Origin:
        return replace(self, changes={})


def set_origin(model: SentenceTransformer, origin: Origin) -> None:
    """Note where a model was found, so that it is named and hashed by its files."""
    origin.changes = _changes(model)
    setattr(model, _ATTRIBUTE, origin)


def unchanged_origin(model: SentenceTransformer) -> Origin | None:
    """Where `load` found a model, if it is as it was then; None for any other, such as one in training."""
    origin: Origin | None = getattr(model, _ATTRIBUTE, None)
    if origin is None or getattr(model, "fingerprint", None) is not None:
        return None
    known, usual = origin.changes, origin.usual_changes
    changed = any(count > known.get(name, usual) for name, count in _changes(model).items())
    return None if changed else origin


def forget_origin(model: SentenceTransformer) -> None:
    """Note that a model is not as its files have it."""
    model.__dict__.pop(_ATTRIBUTE, None)


def _changes(model: SentenceTransformer) -> dict[str, int]:
    from sentence_experts.compat.torch import changes_of

    return {name: changes_of(weight) for name, weight in model.named_parameters()}


def name_of(model: SentenceTransformer) -> str:
    """What a model is called in results: its folder's base name, its hub id, or else its class."""
    origin: Origin | None = getattr(model, _ATTRIBUTE, None)
    if origin is not None:
        return origin.name
    from sentence_experts.compat.sentence_transformers import config_of

    return source_name(getattr(config_of(model), "name_or_path", "") or type(model).__name__)


def fingerprint_of(model: SentenceTransformer, route: str | None = None) -> str:
    """The hash of everything in a model that decides a vector.

    That of its folder's files, or of its hub revision, if it is as `load` found it there; else that of its
    weights. A model may have a `fingerprint` of its own: that of an embedder whose folder lacks its weights.

    Args:
        model: a model in memory.
        route: hash only what decides the vectors of this route, as far as the files tell it apart
            (`folder_fingerprint`).
    """
    if (own := getattr(model, "fingerprint", None)) is not None:
        return str(own)
    origin = unchanged_origin(model)
    of_source = None if origin is None else source_fingerprint(origin.place, origin.commit, route)
    if origin is None or of_source is None:
        return weights_fingerprint(model)
    return sha256_text(of_source, origin.arithmetic) if origin.arithmetic else of_source


def weights_fingerprint(model: SentenceTransformer) -> str:
    """The SHA-256 over the names and values of a model's weights, its prompts and its `fingerprint_parts`."""
    prompts = (f"{name}={text}" for name, text in model.prompts.items())
    parts: tuple[str, ...] = getattr(model, "fingerprint_parts", ())
    digest = hashlib.sha256(sha256_text(*prompts, *parts).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()

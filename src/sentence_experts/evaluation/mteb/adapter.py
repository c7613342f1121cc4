"""A model in mteb's protocol: each text is encoded with the route of its task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ScoringFunction

from sentence_experts.encoding.chunks import Vectors
from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.evaluation.mteb.routes import ROUTES, TaskRoutes
from sentence_experts.evaluation.scorers import encode_in_parts
from sentence_experts.progress import progress
from sentence_experts.storage import sha256_text

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import PromptType
    from torch.utils.data import DataLoader

REVISION_LENGTH = 16
ORGANISATION = "local"  # mteb requires organisation/name
# Similarities of models that mteb has too; it calls the model's own `similarity` for any other.
SIMILARITIES = {"cosine": ScoringFunction.COSINE, "dot": ScoringFunction.DOT_PRODUCT}


class TaskEncoder(AbsEncoder):
    """A `BatchEncoder` for `mteb.evaluate`.

    A vector depends only on the text and its route, except for the last bits, which depend on padding; equal
    texts of one call have equal vectors.
    """

    mteb_model_meta: ModelMeta

    def __init__(self, encoder: BatchEncoder, routes: TaskRoutes | None = None) -> None:
        self.encoder = encoder
        self.routes = routes or TaskRoutes.of(encoder)
        self.model = encoder.model
        self.mteb_model_meta = model_meta(encoder, self.routes)

    def encode(
        self,
        inputs: DataLoader[Any],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> Vectors:
        """Return vectors of shape (texts, dimensions), float32, in the order of the texts.

        The task and `prompt_type` determine the route; the encoder has its own batch size.

        Raises:
            RouteError: the model has no route for these texts.
            InputError: the model returns a vector that is not finite.
        """
        role = prompt_type.value if prompt_type else None
        route = self.routes.route(task_metadata.name, str(task_metadata.type), role)
        texts = [text for batch in inputs for text in batch["text"]]
        what = f"{self.encoder.name}: {task_metadata.name}{f' [{route}]' if route else ''}"
        rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        with progress(what, len(rows)) as advance:
            vectors = encode_in_parts(self.encoder, list(rows), route, advance)
        return vectors[[rows[text] for text in texts]]


def model_meta(encoder: BatchEncoder, routes: TaskRoutes) -> ModelMeta:
    """Return the model in mteb's results; `revision` is a hash of everything that its scores depend on.

    These are the files of the model, pooling, maximum length, number type and routes; they are recorded in
    `loader_kwargs`.
    """
    settings = encoder.cache_key(None)
    del settings["route"]
    if encoder.routes:
        settings["route_of_task"] = {**ROUTES, **routes.given}
    # These come before the model's own routes, where they are given.
    if usual := {key: route for key, route in routes.given.items() if ROUTES.get(key) == route}:
        settings["given_routes"] = usual
    model = encoder.model
    if (similarity := str(model.similarity_fn_name)) != "cosine":  # of a model in memory it may have changed
        settings["similarity"] = similarity
    known: dict[str, Any] = {
        "loader_kwargs": settings,
        "name": encoder.name if "/" in encoder.name else f"{ORGANISATION}/{encoder.name}",
        "revision": sha256_text(json.dumps(settings, sort_keys=True))[:REVISION_LENGTH],
        "n_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "max_tokens": model.max_seq_length,
        "embed_dim": encoder.dimension,
        "framework": ["Sentence Transformers", "PyTorch"],
        "similarity_fn_name": SIMILARITIES.get(str(model.similarity_fn_name)),
        "use_instructions": bool(encoder.routes),
    }
    return ModelMeta.create_empty(known)

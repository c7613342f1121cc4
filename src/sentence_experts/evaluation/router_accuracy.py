"""The share of texts that a learned router sends to the expert of their domain (preprint, section 3.2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sentence_experts.evaluation.scorers import texts_by_domain
from sentence_experts.models.onnx_encoder import OnnxEncoder
from sentence_experts.storage import sha256_text

if TYPE_CHECKING:
    from sentence_experts.encoding.encoder import BatchEncoder

# Number of texts per domain: the share is then known within 3 points (two standard errors).
TEXTS_WHILE_TRAINING = 1000


@dataclass(frozen=True)
class RouterAccuracy:
    """The share of texts whose chosen expert is their domain's: by block, by domain, and their mean.

    `texts` is their number; a text counts once in each domain that it occurs in.
    """

    texts: int
    by_block: Mapping[int, float]
    by_domain: Mapping[str, float]
    mean: float


def router_accuracy(
    encoder: BatchEncoder,
    table: pa.Table,
    routes: Mapping[str, str | None],
    max_texts: int | None = None,
) -> RouterAccuracy | None:
    """Measure the routers of a model on the texts of pairs; None without learned routers or domain experts.

    Args:
        encoder: the model.
        table: pairs, columns anchor, positive and domain.
        routes: domain -> the route with which its texts are encoded; None for no prompt.
        max_texts: maximum number of texts per domain, always the same ones; None for all.
    """
    if isinstance(encoder.model, OnnxEncoder):  # a graph has no learned routers
        return None
    from sentence_experts.models.routes.kinds import router_kind_of

    kind = router_kind_of(encoder.model)
    if kind is None or not kind.reads_texts:
        return None
    model: Any = encoder.model
    config = model.config
    experts = {name: number for number, name in enumerate(config.experts)}
    experts |= {route["name"]: route["expert"] for route in config.routes}
    by_domain = texts_by_domain(table)
    hits: dict[str, NDArray[np.bool_]] = {}
    blocks: tuple[int, ...] = ()
    for domain, route in routes.items():
        if (name := route if route in experts else domain) in experts:
            texts = sorted(by_domain.get(domain, ()), key=sha256_text)[:max_texts]  # arbitrary, but fixed
            choices = model.router_choices(texts, route or None, encoder.texts_at_once)
            hits[domain], blocks = choices.chosen == experts[name], choices.blocks
    if not hits:
        return None
    every = np.concatenate(list(hits.values()))  # (texts, blocks)
    return RouterAccuracy(
        texts=len(every),
        by_block=dict(zip(blocks, every.mean(axis=0).tolist(), strict=True)),
        by_domain={domain: float(rows.mean()) for domain, rows in hits.items()},
        mean=float(every.mean()),
    )

"""What a change of a model did to each route: its vectors before and after, and its figures on pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sentence_experts.encoding.encoder import BatchEncoder, cosines
from sentence_experts.errors import InputError
from sentence_experts.evaluation.metrics import Metrics, pair_metrics
from sentence_experts.evaluation.pairs import checked_table, cosine_by_text, domains_of
from sentence_experts.models.routing.route_classifier import AUTO

# For models that are compared without texts of one's own: short, long, odd, and of several fields.
TEXTS = (
    "",
    "leaves",
    "Roots take up water from the soil and leaves give it off.",
    "Does a shorter night change what a mouse remembers of a maze?",
    "Lung function fell by 12% (95% interval 8 to 16) in the 240 patients who went on smoking.",
    "The valve opens when the pressure in the chamber is higher than in the vessel behind it.",
    "dna rna atp",
    "Größe, œdème, 細胞, βeta-blocker; x = 3.5e-4 mol/L",
    "We counted cells, and then we counted them again to see how much two counts differ. " * 12,
)


@dataclass(frozen=True)
class RouteChange:
    """One route's vectors in both models.

    Attributes:
        route: its name; None for texts without a route.
        bit_equal: whether every number of every vector is the same.
        largest_difference: between two numbers at the same place.
        smallest_cosine: between the two vectors of a text.
    """

    route: str | None
    bit_equal: bool
    largest_difference: float
    smallest_cosine: float


def route_changes(
    before: BatchEncoder, after: BatchEncoder, texts: Sequence[str] = TEXTS
) -> list[RouteChange]:
    """Each route that both models have, in the order of `before`; routes of one alone are left out.

    Models that take texts without a route (dense ones) are compared so too.

    Raises:
        InputError: the models have no route in common, or vectors of different lengths.
    """
    shared: list[str | None] = [route for route in before.routes if route in after.routes and route != AUTO]
    if not before.has_experts and not after.has_experts:
        shared.append(None)
    if not shared:
        known = [", ".join(encoder.routes) or "none" for encoder in (before, after)]
        raise InputError(f"the models have no route in common: {known[0]} before, {known[1]} after")
    if before.dimension != after.dimension:
        raise InputError(f"vectors have {before.dimension} numbers before and {after.dimension} after")
    changes = []
    for route in shared:
        first, second = (encoder.encode(texts, route) for encoder in (before, after))
        changes.append(
            RouteChange(
                route,
                bool(np.array_equal(first, second)),
                float(np.abs(first - second).max()),
                float(cosines(first, second).min()),
            )
        )
    return changes


def figures_by_domain(encoder: BatchEncoder, pairs: pa.Table) -> dict[str, Metrics | None]:
    """The metrics of each domain's pairs, encoded with its route; None where the model lacks the route.

    Raises:
        InputError: the pairs lack a column or hold bad values.
    """
    table = checked_table(pairs)
    return {domain: _figures(encoder, table, domain) for domain in domains_of(table)}


def _figures(encoder: BatchEncoder, table: pa.Table, domain: str) -> Metrics | None:
    route = domain if domain in encoder.routes else None
    if route is None and encoder.has_experts:
        return None
    rows = table.filter(pc.equal(table["domain"], domain))
    anchors, positives = rows["anchor"].to_pylist(), rows["positive"].to_pylist()
    scores = cosine_by_text(anchors, positives, lambda texts: encoder.encode(texts, route))
    return pair_metrics(scores, rows["label"].to_numpy())

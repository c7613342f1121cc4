"""Compare two versions of a model: the vectors of each route before and after, and the metrics on pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sentence_experts.config import with_settings
from sentence_experts.encoding.encoder import BatchEncoder, cosines
from sentence_experts.errors import InputError
from sentence_experts.evaluation.config import CompareConfig
from sentence_experts.evaluation.metrics import Metrics
from sentence_experts.evaluation.models import Model, ModelRun, label_of
from sentence_experts.evaluation.pair_evaluation import Measured, measure
from sentence_experts.evaluation.pairs import checked_table, domains_of, rows_of, score_pairs
from sentence_experts.evaluation.results import (
    Difference,
    Result,
    corrected,
    differences_of,
    view_of_domain,
)
from sentence_experts.evaluation.scorers import encoder_score
from sentence_experts.models.routes.known_routes import AUTO, KnownRoutes
from sentence_experts.models.sources import check_source, notes_of
from sentence_experts.pairs.dataset import Pairs
from sentence_experts.tables import Table, TextTable

# Compared where the user gives no texts: short, long and odd ones, from several fields.
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


MARGIN = 0.01  # of equivalence, as by default in `evaluate`
_ROUNDING = 1e-5
REPLICATES = 100  # of the bootstrap; ROC-AUC, whose differences are tested, needs none


@dataclass(frozen=True)
class RouteChange:
    """One route's vectors (of texts without a route if it is None) in both models.

    The largest difference is that of two numbers at the same place, the smallest cosine that of a text's two
    vectors.
    """

    route: str | None
    bit_equal: bool
    largest_difference: float
    smallest_cosine: float

    @property
    def name(self) -> str:
        """The route, as it is shown."""
        return self.route or "(none)"

    @property
    def is_changed(self) -> bool:
        """Whether vectors differ by more than their rounding in another forward pass."""
        return not self.bit_equal and self.largest_difference > _ROUNDING


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """The difference between two versions of a model.

    Attributes:
        changes: of each route that both versions have.
        only_before, only_after: names of routes that one version has alone, sorted.
        texts: number of texts whose vectors were compared.
        metrics: domain -> metrics before and after, None if that version lacks the route; empty without
            pairs.
        differences: ROC-AUC before minus after, of each domain that both can measure.
        pairs, simulated: the name of the pairs, and whether their texts are simulated.
        same: whether both are the same model, by their fingerprint; each text was then encoded once.
        untrained: which of "before" and "after" are identical to the base that they were trained from.
    """

    changes: tuple[RouteChange, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    texts: int
    metrics: Mapping[str, tuple[Metrics | None, Metrics | None]] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    pairs: str | None = None
    simulated: bool = False
    same: bool = False
    untrained: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per route."""
        return [asdict(each) for each in self.changes]


@with_settings(CompareConfig)
def compare(
    before: Model,
    after: Model,
    config: CompareConfig | None = None,
    *,
    pairs: Any = None,
    texts: Table | None = None,
    **settings: Any,
) -> Comparison:
    """Compare two versions of a model: whether the vectors of each route changed, and its metrics on pairs.

    Args:
        before: folder, hub id or loaded model.
        after: the same model after a change. Where one of the two takes no routes, such as the base that the
            other was trained from, each route of the other is compared with it.
        pairs: pairs to compare the metrics on, as in `evaluate`.
        texts: texts to compare the vectors of: a list, or a table with a column of texts, such as a .txt or
            .csv file; a few built-in ones by default.
        config, settings: a `CompareConfig`, or single fields of it.

    Raises:
        InputError: a model, the pairs or the texts cannot be read, the versions have no route in common, or
            their vectors differ in length.

    Example:
        >>> compare("model", "model", texts=["One text."]).only_after
        ()
    """
    chosen = CompareConfig.of(config, **settings)
    compared: Sequence[str] = TEXTS if texts is None else TextTable(texts, chosen.column).texts()
    source = None if pairs is None else Pairs.of(pairs, chosen.split, labelled=True)
    _check_common(before, after)
    first, second = (ModelRun(label_of(each), "", each).open(chosen) for each in (before, after))
    untrained = tuple(
        name for name, each in (("before", first), ("after", second)) if notes_of(each.model).get("untrained")
    )
    same = first.fingerprint == second.fingerprint
    second = first if same else second
    changes = route_changes(first, second, compared)
    known = {each.route for each in changes}
    old, new = first.routes.keys(), second.routes.keys()
    only = tuple(sorted(old - new - known)), tuple(sorted(new - old - known))
    comparison = Comparison(tuple(changes), *only, len(compared), same=same, untrained=untrained)
    if source is None:
        return comparison
    table = source.split(chosen.split)
    one = measured_by_domain(first, table)
    other = one if same else measured_by_domain(second, table)
    unchanged = {each.route for each in changes if not each.is_changed}
    differences: list[Difference] = []
    for domain in (each for each in one if each not in unchanged):
        both, view = {"before": one[domain], "after": other[domain]}, view_of_domain(domain)
        measured = {when: each for when, each in both.items() if each is not None}
        values = {when: each.figures[view].metrics["roc_auc"] for when, each in measured.items()}
        runs = {when: each.runs[view]["roc_auc"] for when, each in measured.items()}
        found = differences_of(values, runs, view, "roc_auc", MARGIN)
        differences += [each for each in found if each.p_value is not None]
    return replace(
        comparison,
        metrics={domain: (_metrics(one[domain], domain), _metrics(other[domain], domain)) for domain in one},
        differences=tuple(corrected(differences)),
        pairs=source.name,
        simulated=source.are_simulated,
    )


def _metrics(measured: Measured | None, domain: str) -> Metrics | None:
    return None if measured is None else dict(measured.figures[view_of_domain(domain)].metrics)


def _check_common(before: Model, after: Model) -> None:
    """Check, before models are loaded from folders, that they have a route in common, if they need one."""
    check_source(before, after)
    known = [KnownRoutes.read(each) for each in (before, after)]
    one, other = (set() if each is None else {*each.prompts} - {AUTO} for each in known)
    if None not in known and all(each and each.experts for each in known) and not one & other:
        raise _nothing_common(one, other)


def _nothing_common(before: Iterable[str], after: Iterable[str]) -> InputError:
    known = [", ".join(routes) or "none" for routes in (before, after)]
    return InputError(f"the models have no route in common: {known[0]} before, {known[1]} after")


def route_changes(
    before: BatchEncoder, after: BatchEncoder, texts: Sequence[str] = TEXTS
) -> list[RouteChange]:
    """Return each route that both models have, in the order of `before`; routes of one alone are left out.

    Models that take texts without a route (dense ones) are compared so too: two of them with each other, one
    with each route of a model with experts.
    """
    own, others = ([route for route in each.routes if route != AUTO] for each in (before, after))
    shared: list[tuple[str | None, str | None]] = [(route, route) for route in own if route in others]
    if not before.has_experts and not after.has_experts:
        shared.append((None, None))
    elif not before.has_experts and not shared:
        shared = [(None, route) for route in others]
    elif not after.has_experts and not shared:
        shared = [(route, None) for route in own]
    if not shared:
        raise _nothing_common(before.routes, after.routes)
    if before.dimension != after.dimension:
        raise InputError(f"vectors have {before.dimension} numbers before and {after.dimension} after")
    changes = []
    for route, other in shared:
        first = before.encode(texts, route)
        second = first if after is before else after.encode(texts, other)
        equal, apart = bool(np.array_equal(first, second)), float(np.abs(first - second).max())
        changes.append(RouteChange(route or other, equal, apart, float(cosines(first, second).min())))
    return changes


def measured_by_domain(encoder: BatchEncoder, pairs: pa.Table) -> dict[str, Measured | None]:
    """Measure each domain's pairs with its route; None where the model lacks the route."""
    table = checked_table(pairs)
    measured: dict[str, Measured | None] = {}
    for domain in domains_of(table):
        route = domain if domain in encoder.routes else None
        if route is None and encoder.has_experts:
            measured[domain] = None
            continue
        rows = table.take(pa.array(rows_of(table, domain)))
        scores = score_pairs(encoder_score(encoder, {domain: route}), rows)
        measured[domain] = measure(rows, scores, REPLICATES)
    return measured

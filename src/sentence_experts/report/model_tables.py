"""Comparisons of models and of routes as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from sentence_experts.evaluation.auto_route import Choices
from sentence_experts.evaluation.compare import Comparison
from sentence_experts.evaluation.similarity import Similarity, Welch
from sentence_experts.report.tables import UNDEFINED, terminal_table

METRICS = {"f1_max": "F1max", "roc_auc": "ROC-AUC"}


def comparison_tables(found: Comparison) -> Iterator[Table]:
    """The change of each route's vectors, and of the metrics on each domain's pairs, if measured."""
    headings = ("vectors", "largest difference", "smallest cosine")
    rows = {
        change.route or "(none)": ["bit-equal", "0", "1"]
        if change.bit_equal
        else ["changed", f"{change.largest_difference:.2e}", f"{change.smallest_cosine:.6f}"]
        for change in found.changes
    }
    yield terminal_table(f"Vectors of {found.texts:,} texts", "route", headings, rows)
    if not found.metrics:
        return
    names = [name for metric in METRICS.values() for name in (f"{metric} before", "after", "change")]
    table = terminal_table("Metrics on the pairs", "domain", names)
    for domain, both in found.metrics.items():
        cells = []
        for metric in METRICS:
            first, second = ((metrics or {}).get(metric) for metrics in both)
            change = None if first is None or second is None else second - first
            cells += [_number(first), _number(second), _number(change, "+.4f")]
        table.add_row(domain, *cells)
    yield table


def similarity_table(found: Similarity) -> Table:
    """Mean and standard deviation of the cosines of each pair of routes, and the tests between two models."""
    tested = ("difference", "p", "p Holm") if found.tests else ()
    title = f"Cosine of a text under two routes, {found.texts['used']:,} texts (mean ± sd)"
    table = terminal_table(title, "routes", [*found.cosines, *tested])
    for pair in next(iter(found.cosines.values())):
        values = [cosines[pair] for cosines in found.cosines.values()]
        cells = [f"{each.mean():.3f}±{each.std(ddof=1):.3f}".replace("0.", ".") for each in values]
        table.add_row(" – ".join(pair), *cells, *(_tested(found.tests[pair]) if tested else ()))
    return table


def choice_table(found: Choices, confidence: float) -> Table:
    """How often automatic routes were right about texts that they were not learned from."""
    routes = sorted({route for _, route in found.chosen})
    headings = ("texts", *routes, "right", f"below {confidence:g}", "right above")
    table = terminal_table("Routes chosen for texts that were not learned from", "domain", headings)
    for domain in (*found.domains, None):
        chosen = [f"{found.chosen[domain, route]:,}" if domain else "" for route in routes]
        shares = (
            found.accuracy(domain),
            found.below_confidence(domain),
            found.accuracy_above_confidence(domain),
        )
        table.add_row(domain or "all", f"{found.texts(domain):,}", *chosen, *map(_share, shares))
    return table


def cost_table(cost: dict[str, tuple[float | None, float | None]], split: str) -> Table:
    """F1max with the true and with automatic routes."""
    headings = ("true routes", "automatic", "difference")
    table = terminal_table(f"Cost of wrong routes: F1max on the {split} pairs", "pairs", headings)
    for view, (true, automatic) in cost.items():
        change = None if true is None or automatic is None else automatic - true
        table.add_row(view, _number(true), _number(automatic), _number(change, "+.4f"))
    return table


def p_text(value: float | None) -> str:
    """A p-value in few characters."""
    if value is None:
        return UNDEFINED
    return "<.001" if value < 0.001 else f"{value:.3f}".replace("0.", ".", 1)


def _tested(test: Welch) -> list[str]:
    difference = f"{test.difference:+.3f}".replace("0.", ".", 1)
    return [difference, p_text(test.p_value), p_text(test.p_holm)]


def _number(value: float | None, form: str = ".4f") -> str:
    return UNDEFINED if value is None else format(value, form)


def _share(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.1%}"

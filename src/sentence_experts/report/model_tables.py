"""Comparisons of models and of routes, and audits of pairs, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.table import Table

from sentence_experts.evaluation.audit.leaks import LEAKS, WITHOUT
from sentence_experts.evaluation.results import PAIR_WEIGHTED_MEAN, POOLED, View
from sentence_experts.report.tables import bounds, change, number, p_text, terminal_table, text_free_table

METRICS = {"f1_max": "F1max", "roc_auc": "ROC-AUC"}
AVERAGES = {POOLED: "all, pooled", PAIR_WEIGHTED_MEAN: "mean of the domains"}

if TYPE_CHECKING:
    from sentence_experts.evaluation.audit.run import Audit
    from sentence_experts.evaluation.auto_route import Choices
    from sentence_experts.evaluation.compare import Comparison
    from sentence_experts.evaluation.similarity import Similarity, Welch


def comparison_tables(comparison: Comparison) -> Iterator[Table]:
    """The change of each route's vectors, and of the metrics on each domain's pairs, if measured."""
    headings = ("vectors", "largest difference", "smallest cosine")
    table = terminal_table(f"Vectors of {comparison.texts:,} texts", "route", headings)
    for each in comparison.changes:
        changed = ("changed", f"{each.largest_difference:.2e}", f"{each.smallest_cosine:.6f}")
        table.add_row(each.route or "(none)", *(("bit-equal", "0", "1") if each.bit_equal else changed))
    yield table
    if not comparison.metrics:
        return
    names = [name for metric in METRICS.values() for name in (f"{metric} before", "after", "change")]
    table = terminal_table("Metrics on the pairs", "domain", names)
    for domain, both in comparison.metrics.items():
        cells = []
        for metric in METRICS:
            first, second = ((metrics or {}).get(metric) for metrics in both)
            cells += [number(first, ".4f"), number(second, ".4f"), change(first, second)]
        table.add_row(domain, *cells)
    yield table


def similarity_table(similarity: Similarity) -> Table:
    """Mean and standard deviation of the cosines of each pair of routes, and the tests between two models."""
    tested = ("difference", "p", "p Holm") if similarity.tests else ()
    title = f"Cosine of a text under two routes, {similarity.texts['used']:,} texts (mean ± sd)"
    table = terminal_table(title, "routes", [*similarity.cosines, *tested])
    for pair in next(iter(similarity.cosines.values())):
        values = [cosines[pair] for cosines in similarity.cosines.values()]
        cells = [f"{each.mean():.3f}±{each.std(ddof=1):.3f}".replace("0.", ".") for each in values]
        table.add_row(" – ".join(pair), *cells, *(_tested(similarity.tests[pair]) if tested else ()))
    return table


def choice_table(choices: Choices, confidence: float) -> Table:
    """How often automatic routes were right about texts that they were not learned from."""
    routes = sorted({route for _, route in choices.chosen})
    headings = ("texts", *routes, "right", f"below {confidence:g}", "right above")
    table = terminal_table("Routes chosen for texts that were not learned from", "domain", headings)
    for domain in (*choices.domains, None):
        chosen = [f"{choices.chosen[domain, route]:,}" if domain else "" for route in routes]
        measures = (choices.accuracy, choices.below_confidence, choices.accuracy_above_confidence)
        shares = [number(measure(domain), ".1%") for measure in measures]
        table.add_row(domain or "all", f"{choices.texts(domain):,}", *chosen, *shares)
    return table


def cost_table(cost: Mapping[View, tuple[float | None, float | None]], split: str) -> Table:
    """F1max with the true and with automatic routes."""
    headings = ("true routes", "automatic", "difference")
    table = terminal_table(f"Cost of wrong routes: F1max on the {split} pairs", "pairs", headings)
    for view, (true, automatic) in cost.items():
        table.add_row(
            view.domain or AVERAGES[view],
            number(true, ".4f"),
            number(automatic, ".4f"),
            change(true, automatic),
        )
    return table


def _tested(test: Welch) -> list[str]:
    difference = f"{test.difference:+.3f}".replace("0.", ".", 1)
    return [difference, p_text(test.p_value), p_text(test.p_holm)]


def audit_tables(audit: Audit) -> Iterator[Table]:
    """What the splits share, the leaks of the test pairs, and the metrics with and without them."""
    yield _overlaps(audit)
    yield _leaks(audit)
    for model in dict.fromkeys(each.model for each in audit.measurements):
        yield _metrics(audit, model)
    if audit.text_free:
        yield text_free_table(audit.text_free)


def audit_notes(audit: Audit) -> list[str]:
    """Counts that are in no table."""
    notes = [f"pairs that are labelled both linked and unlinked: {audit.leaks.contradictions:,}"]
    if audit.citing is not None:
        seen, articles = audit.citing
        notes.append(f"articles that link test pairs and also training pairs: {seen:,} of {articles:,}")
    return notes


def _overlaps(audit: Audit) -> Table:
    table = terminal_table("What two splits share", "splits", ("papers", "texts", "near-duplicate texts"))
    for each in audit.leaks.overlaps:
        counts = (each.papers, each.texts, each.near_duplicates)
        table.add_row(f"{each.first}, {each.second}", *(f"{count:,}" for count in counts))
    return table


def _leaks(audit: Audit) -> Table:
    pairs = audit.pairs["test"]
    table = terminal_table(
        f"Test pairs that leak from training ({pairs:,} test pairs)", "leak", ("pairs", "share")
    )
    for kind, meaning in LEAKS.items():
        count = int(audit.leaks.masks[kind].sum())
        table.add_row(meaning, f"{count:,}", f"{count / pairs:.1%}")
    return table


def _metrics(audit: Audit, model: str) -> Table:
    headings = [heading for name in METRICS.values() for heading in (name, "change")]
    table = terminal_table(
        f"{model}, with and without leaked test pairs", "test pairs", ["left", "used", *headings]
    )
    rows = {each.test_set: each for each in audit.measurements if each.model == model}
    first = rows[next(iter(WITHOUT))].figures
    for name, row in rows.items():
        cells: list[str] = []
        for metric in METRICS:
            value = row.figures.metrics[metric] if row.figures else None
            before = first.metrics[metric] if first else None
            ends = bounds(row.figures.intervals.get(metric)) if row.figures else ""
            moved = "" if row.figures is first else change(before, value, "+.3f")
            cells += [f"{number(value)}\n{ends}".rstrip(), moved]
        used = row.figures.pairs if row.figures else 0
        table.add_row(name, f"{row.left:,}", f"{used:,}", *cells)
    return table

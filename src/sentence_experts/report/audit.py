"""The report of an audit."""

from __future__ import annotations

from collections.abc import Mapping

from sentence_experts.evaluation.audit import CLEANED, LEAKS, WITHOUT, Audit, Measurement
from sentence_experts.evaluation.results import PairMetrics
from sentence_experts.evaluation.scorers import MEMORY_LABEL, TFIDF_LABEL
from sentence_experts.evaluation.text_free import describe_suspicion
from sentence_experts.report.content import Item, Report, Table, Verdict
from sentence_experts.report.pairs import METRICS, text_free_table
from sentence_experts.report.wording import REAL_ARTICLES, SIMULATED, metric_cell, number

ALL_PAIRS = next(iter(WITHOUT))
TOLERATED = 0.05  # share of test pairs that leak


def audit_report(audit: Audit) -> Report:
    """Return the report: what the splits share, which test pairs leak, the metrics with and without them."""
    pairs = audit.pairs["test"]
    overlaps = [
        [f"{each.first}, {each.second}", *(f"{n:,}" for n in (each.papers, each.texts, each.near_duplicates))]
        for each in audit.between_splits
    ]
    leaks = [
        [LEAKS[kind], f"{count:,}", f"{count / pairs:.1%}"] for kind, count in audit.leaked_test_pairs.items()
    ]
    main: list[Item] = [
        "Overlaps of training and test pairs, and how metrics change without the test pairs that leak. The "
        "pairs left are balanced as all test pairs are; below a value is its 95% interval.",
        Table("Overlaps of each two splits", ("splits", "papers", "texts", "near-duplicate texts"), overlaps),
        Table(
            f"Test pairs that leak from training ({pairs:,} test pairs)", ("leak", "pairs", "share"), leaks
        ),
    ]
    headings = [heading for name in METRICS.values() for heading in (name, "change")]
    models: dict[str, dict[str, Measurement]] = {}
    for one in audit.figures:
        models.setdefault(one.model, {})[one.test_set] = one
    for model, sets in models.items():
        first, rows = sets[ALL_PAIRS].figures, []
        for name, each in sets.items():
            row = [name, f"{each.left:,}", f"{each.figures.pairs if each.figures else 0:,}"]
            for metric in METRICS:
                before, after = (
                    figures.metrics[metric] if figures else None for figures in (first, each.figures)
                )
                row.append(metric_cell(each.figures, metric) if each.figures else number(None))
                change = None if before is None or after is None else after - before
                row.append("" if each.figures is first else number(change, "+.3f"))
            rows.append(row)
        title = f"{model}, with and without leaked test pairs"
        main.append(Table(title, ("test pairs", "left", "used", *headings), rows))
    if audit.text_free:
        main.append(text_free_table(audit.text_free))
    notes = [f"pairs that are labelled both linked and unlinked: {audit.contradicted_pairs:,}"]
    if audit.test_articles is not None:
        seen = f"{audit.test_articles_seen_in_training or 0:,} of {audit.test_articles:,}"
        notes.append(f"articles that link test pairs and also training pairs: {seen}")
    return Report(f"Audit of {audit.name}", _judge(audit, models), main, notes=notes)


def _judge(audit: Audit, models: Mapping[str, Mapping[str, Measurement]]) -> Verdict:
    """Judge by the share of test pairs that leak, and what figures lose without them."""
    pairs, leaked, counts = audit.pairs["test"], audit.leaked_pairs.num_rows, audit.leaked_test_pairs
    compared = (
        f"{SIMULATED if audit.simulated else ''}Audited {pairs:,} test pairs against "
        f"{audit.pairs['train']:,} training pairs ({audit.name})."
    )
    findings = ["No test pair leaks from training."]
    if leaked:
        worst = max(counts, key=lambda kind: counts[kind])
        findings = [
            f"{leaked / pairs:.1%} of the test pairs leak from training in some way; the most frequent: "
            f"{LEAKS[worst]} ({counts[worst]:,} pairs)."
        ]
    findings += filter(None, [describe_suspicion(audit.text_free)])
    falls = False
    for model, sets in models.items():
        text, fell = _change_without_leaks(model, sets)
        findings += [text] if text else []
        falls = falls or fell
    advice = [REAL_ARTICLES] if audit.simulated else []
    if leaked / pairs > TOLERATED:
        advice.append("Compile the pairs with `split=paper` (or article) and train again.")
    if falls:
        advice.append(f"Report figures on the test pairs {CLEANED}; those on all pairs are partly memory.")
    if models.keys() <= {TFIDF_LABEL, MEMORY_LABEL}:
        advice.append(
            "Give `audit` models too: their figures with and without the leaks show how much these matter."
        )
    return Verdict(compared, findings, advice or ["Nothing to mend here; next, `evaluate`."])


def _change_without_leaks(model: str, sets: Mapping[str, Measurement]) -> tuple[str | None, bool]:
    """Return a model's ROC-AUC with and without leaks, and whether it falls by more than chance explains."""
    before, after = sets[ALL_PAIRS].figures, sets[CLEANED].figures
    value = before.metrics["roc_auc"] if before else None
    if before is None or value is None:
        return None, False
    if model == MEMORY_LABEL:
        return f"The training pairs alone, without any text, reach ROC-AUC {_format_auc(before)}.", False
    clean = after.metrics["roc_auc"] if after else None
    if after is None or clean is None or after.pairs == before.pairs:  # nothing of that kind leaks
        return f"{model}: ROC-AUC {_format_auc(before)}.", False
    interval = after.intervals.get("roc_auc")
    fell = interval is not None and interval.high < value
    sure = "more than chance explains" if fell else "no more than chance may explain"
    sure = sure if interval is not None else "with unknown certainty"
    both = f"{_format_auc(before)}, and {_format_auc(after)} {CLEANED}"
    return f"{model}: ROC-AUC {both}: {clean - value:+.3f}, {sure}.", fell


def _format_auc(figures: PairMetrics) -> str:
    """Return ROC-AUC with its interval, as part of a sentence."""
    interval = figures.intervals.get("roc_auc")
    ends = f" ({interval.low:.3f} to {interval.high:.3f})" if interval else ""
    return f"{number(figures.metrics['roc_auc'])}{ends}"

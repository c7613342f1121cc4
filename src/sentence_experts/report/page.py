"""One self-contained HTML page of an evaluation: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

import numpy as np
import pyarrow.compute as pc

from sentence_experts.evaluation.results import (
    PAIR_WEIGHTED_MEAN,
    POOLED,
    Difference,
    PairEvaluation,
    PairMetrics,
    View,
    score_column,
    suspicion,
)
from sentence_experts.report import html
from sentence_experts.report.figures import curves, heat_map, histograms
from sentence_experts.report.tables import (
    DIFFERENCES,
    EQUIVALENT,
    MAX_ROWS,
    MEANING_OF_TEXT_FREE,
    SIGNIFICANT,
    TEXT_FREE,
    UNDEFINED,
    counted,
    difference_rows,
    lines,
    meaning_of_differences,
    number,
    router_rows,
    sampled,
    seeds_note,
    text_free_rows,
    views,
)
from sentence_experts.report.verdict import of_pairs

HEADINGS = {
    "f1_max": "F1max",
    "precision": "Precision",
    "recall": "Recall",
    "threshold": "Threshold",
    "roc_auc": "ROC-AUC",
    "ratio": "Ratio",
    "mean_positive": "Linked cosine",
    "mean_negative": "Unlinked cosine",
    "mean_distance": "Distance",
    "accuracy": "Accuracy",
}
BEST_IS_LARGEST = ("f1_max", "roc_auc")
MEANINGS = {
    "F1max": "the best F1 over all thresholds; precision, recall, accuracy and threshold belong to it",
    "ROC-AUC": "the probability that a linked pair scores higher than an unlinked one",
    "Ratio": "mean cosine of linked pairs / mean cosine of unlinked pairs",
    "Distance": "mean absolute difference between cosine and label (1 linked, 0 not)",
    "95% intervals": "in small print below a value; they allow for pairs that share a paper, and for the "
    "seeds if a model has several runs. F1max is the largest of many values, so it is too high on few pairs: "
    "its interval is around the value without that bias, and F1max itself may lie near its upper end",
    "±": "standard deviation over the runs of one model, trained with different seeds",
    "p": "of the test that corresponds to the interval of a difference (below 0.05 if it leaves out 0), "
    "corrected by Holm for all pairs of models",
    "rank p": "Wilcoxon's signed-rank test, corrected by Holm, on the areas under the ROC curve in blocks of "
    "papers: for two fixed models only, since it does not account for seeds",
    "≈": "equivalent: the whole interval of the difference lies within a margin that was set beforehand",
}


def evaluation_page(evaluation: PairEvaluation) -> str:
    """The page: pooled, the mean of the domains, then each domain with its drawings."""
    pairs, split = str(evaluation.settings.get("pairs", "pairs")), str(evaluation.settings.get("split", ""))
    models = f"{len(evaluation.models)} models" if len(evaluation.models) > 1 else evaluation.models[0].label
    title = f"Evaluation of {models} on {pairs}" + (f", {split} split" if split else "")
    body = "\n".join(_sections(evaluation))
    meanings = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in MEANINGS.items())
    links = "".join(
        f'<a href="#view-{number}">{escape(_heading(key))}</a>'
        for number, (key, _, _) in enumerate(views(evaluation))
    )
    return html.document(
        title,
        f"{html.verdict(of_pairs(evaluation).lines())}\n"
        "<p>How well the cosine of the vectors of two texts distinguishes linked from unlinked papers of the "
        f"same domain.{_relation(evaluation)}</p>\n<nav>{links}</nav>\n{body}\n"
        f"<section>\n<h2>Meaning of the metrics</h2>\n<dl>{meanings}</dl>\n</section>\n"
        f"{_settings(evaluation)}",
    )


def _relation(evaluation: PairEvaluation) -> str:
    made = evaluation.settings.get("pairs_settings", {})
    if not {"relation", "unit", "split"} <= set(made):
        return ""
    return escape(
        f" Linked by {made['relation']}; texts: {made['unit']}; sets split by {made['split']}; negatives: "
        f"{made.get('negatives', 'cited')}."
    )


def _sections(evaluation: PairEvaluation) -> Iterator[str]:
    for number_, (key, title, rows) in enumerate(views(evaluation)):
        yield f'<section id="view-{number_}">\n<h2>{escape(_heading(key))}</h2>'
        if key == PAIR_WEIGHTED_MEAN:
            yield (
                '<p class="note">Here every domain has its own threshold, which flatters a model '
                "compared with one threshold for all. Compare pooled metrics with pooled metrics, and means "
                "with means.</p>"
            )
        yield _table(f"{title}: {counted(next(iter(rows.values())))}.", rows, _names(evaluation))
        yield from _compared(evaluation, key)
        if key == POOLED and evaluation.text_free:
            yield _text_free(evaluation)
        if key == POOLED and evaluation.differences:
            yield _differences(evaluation)
        if key == POOLED and evaluation.routers:
            yield _routers(evaluation)
        if key != PAIR_WEIGHTED_MEAN:
            yield from _drawings(evaluation, key, rows)
        yield "</section>"


def _drawings(evaluation: PairEvaluation, key: View, rows: dict[str, PairMetrics]) -> Iterator[str]:
    table = evaluation.scores
    if key.domain is not None:
        table = table.filter(pc.equal(table["domain"], key.domain))
    labels = table["label"].to_numpy().astype(np.int64)
    # Of a model with several runs the figures show the first one.
    runs = {model.label: model.first_run for model in evaluation.models}
    scores = {label: table[score_column(run.label)].to_numpy() for label, run in runs.items()}
    thresholds = {label: run.views[key].metrics["threshold"] for label, run in runs.items()}
    where = f"{split} split, " if (split := evaluation.settings.get("split")) else ""
    where += "all domains" if key.domain is None else f"domain {key.domain}"
    means = "; ".join(
        f"{label}: linked {number(figures.metrics['mean_positive'])}, "
        f"unlinked {number(figures.metrics['mean_negative'])}"
        for label, figures in rows.items()
    )
    yield html.figure(
        histograms(scores, labels, thresholds),
        f"Histograms of cosines. Means: {means}.",
        f"Cosines of linked and unlinked pairs ({where}). The bars of each kind add up to 1; the dotted line "
        "is the threshold of F1max.",
    )
    if 0 < labels.sum() < labels.size:
        areas = "; ".join(f"{label} {number(figures.metrics['roc_auc'])}" for label, figures in rows.items())
        yield html.figure(
            curves(scores, labels, thresholds),
            f"ROC and precision-recall curves. Areas under the ROC curve: {areas}.",
            f"ROC and precision-recall curves ({where}). The dot marks F1max.",
        )


def _names(evaluation: PairEvaluation) -> dict[str, str]:
    return {
        model.label: escape(model.label) + (f"<small>{model.seeds} seeds</small>" if model.runs else "")
        for model in evaluation.models
    }


def _table(caption: str, rows: dict[str, PairMetrics], names: dict[str, str]) -> str:
    best = {name: max((row.metrics[name] or 0.0) for row in rows.values()) for name in BEST_IS_LARGEST}
    cells = ((names[label], "".join(_cells(figures, best))) for label, figures in rows.items())
    return html.table(caption, ("Model", *HEADINGS.values()), cells)


def _compared(evaluation: PairEvaluation, key: View) -> Iterator[str]:
    """The heat map of a view, for three models or more."""
    shown = [
        each
        for each in evaluation.differences
        if each.view == key and each.metric == "roc_auc" and each.value is not None
    ]
    if len(shown) < 2:
        return
    gaps = {(each.first, each.second): each.value or 0.0 for each in shown}
    marks = {(each.first, each.second): _mark(each) for each in shown}
    where = _heading(key).lower() if key.domain is None else f"domain {key.domain}"
    texts = "; ".join(f"{first} minus {second} {gap:+.3f}" for (first, second), gap in gaps.items())
    yield html.figure(
        heat_map([model.label for model in evaluation.models], gaps, marks),
        f"Heat map of differences in ROC-AUC. {texts}.",
        f"ROC-AUC of the row's model minus the column's ({where}). Star: p < {SIGNIFICANT} by the interval "
        f"over {sampled(evaluation)}, corrected by Holm for all pairs of models. {EQUIVALENT.strip()}: "
        f"equivalent within {evaluation.settings['margin']:g}.",
    )


def _mark(difference: Difference) -> str:
    star = "*" if difference.p_holm is not None and difference.p_holm < SIGNIFICANT else ""
    return star + EQUIVALENT.strip() * difference.equivalent


def _differences(evaluation: PairEvaluation) -> str:
    rows = (
        (escape(f"{first} − {second}"), "".join(map(html.cell, cells)))
        for first, second, cells in difference_rows(evaluation)
    )
    caption = (
        f"Each model minus each later one: {meaning_of_differences(evaluation)}. Mean: over the domains, "
        "each with its own threshold."
    )
    note = seeds_note(evaluation)
    count = len({(each.first, each.second) for each in evaluation.differences})
    return (
        (f'<p class="note">{escape(note)}</p>\n' if note else "")
        + f"<details{' open' if count <= MAX_ROWS else ''}><summary>Differences of models</summary>\n"
        f"{html.table(caption, ('Model − model', *DIFFERENCES.values()), rows)}</details>"
    )


def _text_free(evaluation: PairEvaluation) -> str:
    rows = (
        (escape(label), "".join(html.cell(cell.split("\n")) for cell in cells))
        for label, cells in text_free_rows(evaluation.text_free).items()
    )
    warning = suspicion(evaluation.text_free)
    note = f'<p class="note">Careful: {escape(warning)}.</p>\n' if warning else ""
    return note + html.table(f"{TEXT_FREE}: {MEANING_OF_TEXT_FREE}.", ("By", "F1max", "ROC-AUC"), rows)


def _routers(evaluation: PairEvaluation) -> str:
    rows = (
        (escape(label), "".join(html.cell([figure]) for figure in cells))
        for label, cells in router_rows(evaluation).items()
    )
    caption = "Learned routers: the share of texts sent to the expert of their domain."
    return html.table(caption, ("Mean over blocks", *evaluation.routers), rows)


def _cells(figures: PairMetrics, best: dict[str, float]) -> Iterator[str]:
    for name in HEADINGS:
        value, *below = lines(figures, name)
        if value != UNDEFINED and figures.metrics[name] == best.get(name):
            value = f"<strong>{value}</strong>"
        yield html.cell([value, *below])


def _settings(evaluation: PairEvaluation) -> str:
    settings = {
        "evaluation": dict(evaluation.settings),
        "models": {
            run.label: dict(run.settings) for model in evaluation.models for run in model.runs or (model,)
        },
    }
    text = json.dumps(settings, indent=1, ensure_ascii=False)
    return f"<section>\n<h2>Settings</h2>\n<pre>{escape(text)}</pre>\n</section>"


def _heading(key: View) -> str:
    means = {POOLED: "All domains, pooled", PAIR_WEIGHTED_MEAN: "Mean of the domains"}
    return means.get(key) or str(key.domain)

"""The report of an evaluation on pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow.compute as pc

from sentence_experts.evaluation.results import (
    PAIR_WEIGHTED_MEAN,
    POOLED,
    VIEWS,
    Difference,
    ModelResult,
    PairEvaluation,
    PairMetrics,
    View,
    score_column,
    suspicion,
)
from sentence_experts.models.sources import UNTRAINED
from sentence_experts.report.content import Figure, Item, Report, Table
from sentence_experts.report.figures import curves, heat_map, histograms
from sentence_experts.report.tables import COLUMNS, EQUIVALENT, metric_cell, number, p_value
from sentence_experts.report.verdict import (
    REAL_ARTICLES,
    SIGNIFICANT,
    SIMULATED,
    Verdict,
    is_significant,
    listed,
    model_advice,
    names_of_measured,
    single_runs,
    standing,
    with_sign,
)

METRICS = {name: COLUMNS[name] for name in ("f1_max", "roc_auc")}  # those with an interval
SHORT_VIEWS = {POOLED: "all pairs pooled", PAIR_WEIGHTED_MEAN: "mean of the domains"}
# (view, metric) -> heading of the table of differences.
DIFFERENCES = {
    (view, name): f"{heading}, {place}"
    for view, place in ((POOLED, "pooled"), (PAIR_WEIGHTED_MEAN, "mean"))
    for name, heading in METRICS.items()
}
MEANINGS = (
    "F1max: the best F1 over all thresholds; precision, recall, accuracy and threshold belong to it.",
    "ROC-AUC: the probability that a linked pair scores higher than an unlinked one.",
    "Ratio: mean cosine of linked pairs / mean cosine of unlinked pairs. Dist.: mean absolute difference "
    "between cosine and label (1 linked, 0 not).",
    "95% intervals are in small print below a value; they allow for pairs that share a paper, and for the "
    "seeds if a model has several runs. F1max is the largest of many values, so it is too high on few pairs: "
    "its interval is around the value without that bias, and F1max itself may lie near its upper end.",
    "±: standard deviation over the runs of one model, trained with different seeds.",
    f"p: of the test that corresponds to the interval of a difference (below {SIGNIFICANT} if it leaves out "
    f"0), corrected by Holm for all pairs of models. {EQUIVALENT}: equivalent: the whole interval of "
    "the difference lies within a margin that was set beforehand.",
)
LEAD = (
    "How well the cosine of the vectors of two texts distinguishes linked from unlinked papers of the same "
    "domain."
)
OWN_THRESHOLDS = (
    "Every domain has its own threshold here, which flatters a model compared with one threshold for all. "
    "Compare pooled metrics with pooled metrics, and means with means."
)


def pairs_report(evaluation: PairEvaluation) -> Report:
    """Return the report: pooled metrics and figures first; means, domains and differences as details."""
    settings, models = evaluation.settings, evaluation.models
    measured = f"{len(models)} models" if len(models) > 1 else models[0].label
    title = f"Evaluation of {measured} on {settings.get('pairs', 'pairs')}"
    title += f", {settings['split']} split" if settings.get("split") else ""
    lead, made = LEAD, settings.get("pairs_settings", {})
    if {"relation", "unit", "split"} <= set(made):
        lead += f" Linked by {made['relation']}; texts: {made['unit']}; sets split by {made['split']}; "
        lead += f"negatives: {made.get('negatives', 'cited')}."
    without_texts = [text_free_table(evaluation.text_free)] if evaluation.text_free else []
    pooled = [*_curves(evaluation, POOLED), *_heat_map(evaluation, POOLED)]
    main: list[Item] = [lead, _metrics(evaluation, POOLED), *without_texts, *pooled]
    details: dict[str, list[Item]] = {}
    if evaluation.differences:
        details["Differences of models"] = [_differences(evaluation)]
    mean_gaps = _heat_map(evaluation, PAIR_WEIGHTED_MEAN)
    details["Mean of the domains"] = [OWN_THRESHOLDS, _metrics(evaluation, PAIR_WEIGHTED_MEAN), *mean_gaps]
    for view in list(models[0].views)[2:]:
        figures = (_histograms(evaluation, view), *_curves(evaluation, view), *_heat_map(evaluation, view))
        details[f"Domain: {view.domain}"] = [_metrics(evaluation, view), *figures]
    if evaluation.routers:
        details["Learned routers"] = [_routers(evaluation)]
    details["Cosines of all pairs"] = [_histograms(evaluation, POOLED)]
    details["Meaning of the metrics"] = list(MEANINGS)
    runs = {run.label: dict(run.settings) for model in models for run in model.runs or (model,)}
    shown_settings = json.dumps({"evaluation": dict(settings), "models": runs}, indent=1, ensure_ascii=False)
    return Report(title, pairs_verdict(evaluation), main, details, preformatted={"Settings": shown_settings})


def _metrics(evaluation: PairEvaluation, view: View) -> Table:
    first = evaluation.models[0].views[view]
    rows = []
    for model in evaluation.models:
        label = model.label + (f"\n{model.seeds} seeds" if model.seeds > 1 else "")
        rows.append([label, *(metric_cell(model.views[view], name) for name in COLUMNS)])
    title = VIEWS.get(view) or f"Domain: {view.domain}"
    counted = f"{title} ({first.pairs:,} pairs, {first.positives:,} of them linked)"
    return Table(counted, ("Model", *COLUMNS.values()), rows)


def _differences(evaluation: PairEvaluation) -> Table:
    """Return each model minus each later one: value, interval, p-value and equivalence."""
    rows: dict[tuple[str, str], dict[tuple[View, str], str]] = {}
    for gap in evaluation.differences:
        ends = f"{gap.interval.low:+.3f} to {gap.interval.high:+.3f}" if gap.interval else ""
        below = (ends, p_value(gap.p_holm) + f" {EQUIVALENT}" * gap.equivalent)
        cell = "\n".join([number(gap.value, "+.3f"), *filter(None, below)])
        rows.setdefault((gap.first, gap.second), {})[gap.view, gap.metric] = cell
    title = (
        f"Differences (paired, 95% intervals over {_sampled(evaluation)}; p: of the interval, Holm, * below "
        f"{SIGNIFICANT}; {EQUIVALENT}: equivalent within {evaluation.settings['margin']:g})"
    )
    cells = [
        [f"{first}\n- {second}", *(row[at] for at in DIFFERENCES)] for (first, second), row in rows.items()
    ]
    return Table(title, ("Model - model", *DIFFERENCES.values()), cells)


def _sampled(evaluation: PairEvaluation) -> str:
    return f"papers{', articles' * (evaluation.settings.get('cluster') == 'article')} and seeds"


def text_free_table(text_free: Sequence[ModelResult]) -> Table:
    """Return what separates the classes without comparing texts, and the F1 of calling every pair linked."""
    rows = [[model.label, *(metric_cell(model.pooled, name) for name in METRICS)] for model in text_free]
    rows.append(["everything is linked", number(text_free[0].pooled.f1_of_all_linked), number(0.5)])
    title = (
        "Without comparing texts (all domains pooled; what models have above this comes from the texts. A "
        "ROC-AUC below 0.5 means the reverse order)"
    )
    return Table(title, ("By", *METRICS.values()), rows)


def _routers(evaluation: PairEvaluation) -> Table:
    """Return the shares of texts sent to the right expert: all, by domain, by block; a column per run."""
    routers = list(evaluation.routers.values())
    rows = [["all", *(number(each.mean) for each in routers)]]
    for name in dict.fromkeys(domain for each in routers for domain in each.by_domain):
        rows.append([f"domain {name}", *(number(each.by_domain.get(name)) for each in routers)])
    for block in sorted({block for each in routers for block in each.by_block}):
        rows.append([f"block {block}", *(number(each.by_block.get(block)) for each in routers)])
    texts = max(each.texts for each in routers)
    title = f"Learned routers: the share of {texts:,} texts sent to the expert of their domain"
    return Table(title, ("Mean over blocks of", *evaluation.routers), rows)


def _histograms(evaluation: PairEvaluation, view: View) -> Figure:
    means = "; ".join(
        f"{model.label}: linked {number(each['mean_positive'])}, unlinked {number(each['mean_negative'])}"
        for model in evaluation.models
        for each in (model.views[view].metrics,)
    )
    return Figure(
        partial(histograms, *_scores(evaluation, view)),
        f"Histograms of cosines. Means: {means}.",
        f"Cosines of linked and unlinked pairs ({_place(view)}). The bars of each kind add up to 1; the "
        f"dotted line is the threshold of F1max. Means: {means}.",
    )


def _curves(evaluation: PairEvaluation, view: View) -> Iterator[Figure]:
    """Draw the curves of a view that has pairs of both classes."""
    first = evaluation.models[0].views[view]
    if 0 < first.positives < first.pairs:
        areas = "; ".join(
            f"{model.label} {number(model.views[view].metrics['roc_auc'])}" for model in evaluation.models
        )
        yield Figure(
            partial(curves, *_scores(evaluation, view)),
            f"ROC and precision-recall curves. Areas under the ROC curve: {areas}.",
            f"ROC and precision-recall curves ({_place(view)}). The dot marks F1max.",
        )


def _scores(
    evaluation: PairEvaluation, view: View
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, float | None]]:
    """Return label -> scores, the labels of the pairs, and label -> threshold; of several runs the first."""
    table = evaluation.scores
    if view.domain is not None:
        table = table.filter(pc.equal(table["domain"], view.domain))
    runs = {model.label: (*model.runs, model)[0] for model in evaluation.models}
    scores = {label: table[score_column(run.label)].to_numpy() for label, run in runs.items()}
    thresholds = {label: run.views[view].metrics["threshold"] for label, run in runs.items()}
    return scores, table["label"].to_numpy().astype(np.int64), thresholds


def _place(view: View) -> str:
    return SHORT_VIEWS.get(view) or f"domain {view.domain}"


def _heat_map(evaluation: PairEvaluation, view: View) -> Iterator[Figure]:
    """Draw the differences of a view, of three models or more."""
    shown = {
        (each.first, each.second): each
        for each in evaluation.differences
        if (each.view, each.metric) == (view, "roc_auc") and each.value is not None
    }
    if len(shown) < 2:
        return
    gaps = {names: each.value or 0.0 for names, each in shown.items()}
    marks = {
        names: "*" * is_significant(each) + EQUIVALENT * each.equivalent for names, each in shown.items()
    }
    texts = "; ".join(f"{first} minus {second} {gap:+.3f}" for (first, second), gap in gaps.items())
    yield Figure(
        partial(heat_map, list(dict.fromkeys(name for names in gaps for name in names)), gaps, marks),
        f"Heat map of differences in ROC-AUC. {texts}.",
        f"ROC-AUC of the row's model minus the column's ({_place(view)}). Star: p < {SIGNIFICANT} by the "
        f"interval over {_sampled(evaluation)}, corrected by Holm for all pairs of models. {EQUIVALENT}: "
        f"equivalent within {evaluation.settings['margin']:g}.",
    )


def pairs_verdict(evaluation: PairEvaluation) -> Verdict:
    """Judge by the ROC-AUC within domains, or where that is undefined by F1max on all pairs."""
    models, settings = evaluation.models, evaluation.settings
    view, metric = PAIR_WEIGHTED_MEAN, "roc_auc"
    if any(model.views[view].metrics[metric] is None for model in models):
        view, metric = POOLED, "f1_max"
    values = {model.label: model.views[view].metrics[metric] for model in models}
    same, margin = settings.get("same_model", {}), float(settings.get("margin", 0.01))
    known = {label: value for label, value in values.items() if value is not None and label not in same}
    order = sorted(known, key=lambda label: -known[label])
    gaps = [each for each in evaluation.differences if (each.view, each.metric) == (view, metric)]
    copies = [
        model.label
        for model in models
        if any(run.settings.get("untrained") for run in model.runs or (model,))
    ]
    trained = {model.label: model.seeds for model in models if model.trained and model.label not in copies}
    made = settings.get("pairs_settings", {})
    findings = [f"{label} is {UNTRAINED}." for label in copies]
    if order:
        figures = "; ".join(f"{label} {known[label]:.3f}" for label in order)
        findings.append(f"{METRICS[metric]}, {SHORT_VIEWS[view]}: {figures}.")
    findings += standing(order, gaps, with_sign, f"{margin:g}")
    findings += [f"{label} and {first} give the same vectors." for label, first in same.items()]
    findings += [*single_runs(trained, len(models)), *told_without_texts(evaluation.text_free)]
    if made.get("negatives") == "hard" and any(model.settings.get("model") == "tfidf" for model in models):
        findings.append("TF-IDF chose the hard negatives, so that its own figure is low by construction.")
    baselines = [model.label for model in models if not model.trained]
    advice = [
        *([REAL_ARTICLES] if settings.get("simulated") else []),
        *([f"Train {listed(copies)} again: more steps, more pairs, another rate."] if copies else []),
        *model_advice(order, trained, len(models), baselines, "minilm or tfidf"),
        *_more_pairs(order, gaps, margin, models[0].pooled.pairs),
        "Pairs were split at random, so test papers occur in training: `audit` shows how much that matters."
        if made.get("split") == "random"
        else "See with `audit` how much the training pairs tell without any text.",
    ]
    counts, domains = models[0].pooled, models[0].domains
    data = [str(settings.get("pairs", "pairs"))]
    data += [f"{settings['split']} split"] if settings.get("split") else []
    data += [f"{made['negatives']} negatives"] if made.get("negatives") else []
    compared = (
        f"{SIMULATED if settings.get('simulated') else ''}{names_of_measured(values)} on {counts.pairs:,} "
        f"pairs{f' of {len(domains)} domains' if len(domains) > 1 else ''}, {counts.positives:,} of them "
        f"linked ({', '.join(data)})."
    )
    return Verdict(compared, findings, advice)


def told_without_texts(text_free: Sequence[ModelResult]) -> list[str]:
    """Say whether the classes can be told apart without comparing texts."""
    warning = suspicion(text_free)
    return [] if warning is None else [f"{warning[0].upper()}{warning[1:]}."]


def _more_pairs(order: Sequence[str], gaps: Sequence[Difference], margin: float, pairs: int) -> list[str]:
    """Say how many pairs would settle the first two, where they cannot be told apart."""
    gap = next((each for each in gaps if {each.first, each.second} == set(order[:2])), None)
    if gap is None or gap.interval is None or gap.equivalent or is_significant(gap):
        return []
    needed = pairs * ((gap.interval.high - gap.interval.low) / 2 / margin) ** 2
    if needed <= pairs:
        return []
    return [
        f"To tell differences of {margin:g} between {' and '.join(order[:2])}, take about "
        f"{int(float(f'{needed:.1e}')):,} test pairs of as many more papers."
    ]


def pair_figures(figures: PairMetrics) -> str:
    """Return ROC-AUC with its interval, as part of a sentence."""
    interval = figures.intervals.get("roc_auc")
    ends = f" ({interval.low:.3f} to {interval.high:.3f})" if interval else ""
    return f"{number(figures.metrics['roc_auc'])}{ends}"

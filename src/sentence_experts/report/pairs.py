"""The report of an evaluation on pairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from sentence_experts.evaluation.results import (
    PAIR_WEIGHTED_MEAN,
    POOLED,
    ModelResult,
    PairEvaluation,
    View,
    score_column,
)
from sentence_experts.evaluation.text_free import describe_suspicion
from sentence_experts.models.sources import UNTRAINED
from sentence_experts.report.content import Figure, Item, Report, Table, Verdict
from sentence_experts.report.figures import curves
from sentence_experts.report.wording import (
    COLUMNS,
    EQUIVALENT,
    REAL_ARTICLES,
    SIGNIFICANT,
    SIMULATED,
    describe_standing,
    list_names,
    metric_cell,
    model_advice,
    names_of_measured,
    number,
    p_value,
    single_runs,
)

METRICS = {name: COLUMNS[name] for name in ("f1_max", "roc_auc")}  # metrics with an interval
VIEWS = {
    POOLED: "All pairs together, one threshold for all domains",
    PAIR_WEIGHTED_MEAN: "Mean of the domains' metrics, weighted by their pairs; a threshold per domain",
}
SHORT_VIEWS = {POOLED: "all pairs pooled", PAIR_WEIGHTED_MEAN: "mean of the domains by their pairs"}
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
    main: list[Item] = [lead, _make_metrics(evaluation, POOLED)]
    main += [text_free_table(evaluation.text_free)] if evaluation.text_free else []
    if 0 < models[0].pooled.positives < models[0].pooled.pairs:
        main.append(_draw_curves(evaluation))
    details: dict[str, list[Item]] = {}
    if evaluation.differences:
        details["Differences of models"] = [_make_differences(evaluation)]
    details["Mean of the domains"] = [OWN_THRESHOLDS, _make_metrics(evaluation, PAIR_WEIGHTED_MEAN)]
    details["Domains"] = [
        _make_metrics(evaluation, view) for view in models[0].views if view.domain is not None
    ]
    if evaluation.routers:
        details["Learned routers"] = [_make_routers(evaluation)]
    details["Meaning of the metrics"] = list(MEANINGS)
    runs = {run.label: dict(run.settings) for model in models for run in model.runs or (model,)}
    shown = {"evaluation": dict(settings), "models": runs}
    return Report(title, pairs_verdict(evaluation), main, details, settings=shown)


def _make_metrics(evaluation: PairEvaluation, view: View) -> Table:
    first = evaluation.models[0].views[view]
    rows = []
    for model in evaluation.models:
        label = model.label + (f"\n{model.seeds} seeds" if model.seeds > 1 else "")
        rows.append([label, *(metric_cell(model.views[view], name) for name in COLUMNS)])
    title = VIEWS.get(view) or f"Domain: {view.domain}"
    counted = f"{title} ({first.pairs:,} pairs, {first.positives:,} of them linked)"
    return Table(counted, ("Model", *COLUMNS.values()), rows)


def _make_differences(evaluation: PairEvaluation) -> Table:
    """Return each model minus each later one: value, interval, p-value and equivalence."""
    rows: dict[tuple[str, str], list[str]] = {}
    for gap in evaluation.differences:
        if gap.domain is None:
            ends = f"{gap.interval.low:+.3f} to {gap.interval.high:+.3f}" if gap.interval else ""
            below = (ends, p_value(gap.p_holm) + f" {EQUIVALENT}" * gap.equivalent)
            cell = "\n".join([number(gap.value, "+.3f"), *filter(None, below)])
            rows.setdefault((gap.first, gap.second), []).append(cell)
    title = (
        f"Differences (paired, 95% intervals over {_sampled(evaluation)}; p: of the interval, Holm, * below "
        f"{SIGNIFICANT}; {EQUIVALENT}: equivalent within {evaluation.settings['margin']:g})"
    )
    headings = [f"{heading}, {place}" for place in ("pooled", "mean") for heading in METRICS.values()]
    cells = [[f"{first}\n- {second}", *row] for (first, second), row in rows.items()]
    return Table(title, ("Model - model", *headings), cells)


def _sampled(evaluation: PairEvaluation) -> str:
    return f"papers{', articles' * (evaluation.settings.get('cluster') == 'article')} and seeds"


def text_free_table(text_free: Sequence[ModelResult]) -> Table:
    """Return the figures of scores that do not compare texts, and the F1 of calling every pair linked."""
    rows = [[model.label, *(metric_cell(model.pooled, name) for name in METRICS)] for model in text_free]
    rows.append(["everything is linked", number(text_free[0].pooled.f1_of_all_linked), number(0.5)])
    title = (
        "Without comparing texts (all domains pooled; what models have above this comes from the texts. A "
        "ROC-AUC below 0.5 means the reverse order)"
    )
    return Table(title, ("By", *METRICS.values()), rows)


def _make_routers(evaluation: PairEvaluation) -> Table:
    """Return the shares of texts sent to the right expert: all, by domain, by block; a column per run."""
    routers = list(evaluation.routers.values())
    shares: dict[str, list[str]] = {"all": [number(each.mean) for each in routers]}
    for name in dict.fromkeys(domain for each in routers for domain in each.by_domain):
        shares[f"domain {name}"] = [number(each.by_domain.get(name)) for each in routers]
    for block in sorted({block for each in routers for block in each.by_block}):
        shares[f"block {block}"] = [number(each.by_block.get(block)) for each in routers]
    texts = max(each.texts for each in routers)
    title = f"Learned routers: the share of {texts:,} texts sent to the expert of their domain"
    rows = [[name, *cells] for name, cells in shares.items()]
    return Table(title, ("Mean over blocks of", *evaluation.routers), rows)


def _draw_curves(evaluation: PairEvaluation) -> Figure:
    runs = [(*model.runs, model)[0] for model in evaluation.models]
    areas = "; ".join(f"{run.label} {number(run.pooled.metrics['roc_auc'])}" for run in runs)
    scores = {run.label: evaluation.scores[score_column(run.label)].to_numpy() for run in runs}
    labels = evaluation.scores["label"].to_numpy().astype(np.int64)
    thresholds = {run.label: run.pooled.metrics["threshold"] for run in runs}
    first = " Of a model with several seeds, the first run is drawn."
    several = any(model.runs for model in evaluation.models)
    return Figure(
        partial(curves, scores, labels, thresholds),
        f"ROC and precision-recall curves. Areas under the ROC curve: {areas}.",
        f"ROC and precision-recall curves of all pairs. The dot marks F1max.{first * several}",
    )


def pairs_verdict(evaluation: PairEvaluation) -> Verdict:
    """Judge by the ROC-AUC within domains, or where that is undefined by F1max on all pairs."""
    models, settings = evaluation.models, evaluation.settings
    view, metric = PAIR_WEIGHTED_MEAN, "roc_auc"
    if any(model.views[view].metrics[metric] is None for model in models):
        view, metric = POOLED, "f1_max"
    values = {model.label: model.views[view].metrics[metric] for model in models}
    same, made = settings.get("same_model", {}), settings.get("pairs_settings", {})
    known = {label: value for label, value in values.items() if value is not None and label not in same}
    order = sorted(known, key=lambda label: -known[label])
    gaps = [each for each in evaluation.differences if (each.group, each.metric) == (view, metric)]
    copies = list[str]()
    for model in models:
        runs = model.runs or (model,)
        untrained = [run.label for run in runs if run.settings.get("untrained")]
        copies += [model.label] if len(untrained) == len(runs) else untrained
    again = settings.get("same_run", {})
    trained = {
        model.label: model.seeds - sum(run.label in again for run in model.runs)
        for model in models
        if model.trained and model.label not in copies
    }
    findings = [f"{label} is {UNTRAINED}." for label in copies]
    if order:
        figures = "; ".join(f"{label} {known[label]:.3f}" for label in order)
        findings.append(f"{METRICS[metric]}, {SHORT_VIEWS[view]}: {figures}.")
    findings += describe_standing(order, gaps, "{:+.3f}".format, f"{settings.get('margin', 0.01):g}")
    findings += [f"{label} and {first} give the same cosines." for label, first in (same | again).items()]
    findings += [
        *single_runs(trained, len(models)),
        *filter(None, [describe_suspicion(evaluation.text_free)]),
    ]
    baselines = [model.label for model in models if not model.trained]
    advice = [
        *([REAL_ARTICLES] if settings.get("simulated") else []),
        *([f"Train {list_names(copies)} again: more steps, more pairs, another rate."] if copies else []),
        *model_advice(order, trained, len(models), baselines, "minilm or tfidf"),
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

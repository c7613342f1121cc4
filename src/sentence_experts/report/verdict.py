"""The verdict of a report: what was compared, which model is ahead, how certain that is, what to try next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sentence_experts.evaluation.audit.leaks import LEAKS, WITHOUT
from sentence_experts.evaluation.audit.run import Audit
from sentence_experts.evaluation.compare import MARGIN, Comparison
from sentence_experts.evaluation.mteb.results import TaskEvaluation
from sentence_experts.evaluation.results import (
    PAIR_WEIGHTED_MEAN,
    POOLED,
    Difference,
    Evaluation,
    PairEvaluation,
    PairMetrics,
    View,
)
from sentence_experts.evaluation.scorers import MEMORY_LABEL, TFIDF_LABEL
from sentence_experts.evaluation.statistics import Interval
from sentence_experts.models.sources import UNTRAINED
from sentence_experts.report.sentences import (
    audit_advice,
    in_order,
    is_sure,
    listed,
    missing_baseline,
    more_pairs,
    more_seeds,
    names_of_measured,
    no_trained_model_ahead,
    pair_number,
    points,
    single_runs,
    standing,
    told_without_texts,
)

MAX_ADVICE = 3
PART_NAMES = {"hs": "HS", "rw": "RW", "concat": "MoEE (concat)", "sum": "MoEE (sum)"}
SIMULATED = "SIMULATED TEXTS, which show that everything works, and nothing about science: "
CLEANED = "without training papers and texts"  # of `WITHOUT`: the set that figures should hold on
TOLERATED = 0.05  # share of test pairs that leak
METRICS = {"roc_auc": "ROC-AUC", "f1_max": "F1max"}
VIEWS = {POOLED: "all pairs pooled", PAIR_WEIGHTED_MEAN: "mean of the domains"}
REAL_ARTICLES = "Run the same on real articles: the texts here are SIMULATED."


@dataclass(frozen=True)
class Verdict:
    """Sentences: what was compared, what was found, how certain that is, and what to try next."""

    compared: str
    findings: tuple[str, ...]
    advice: tuple[str, ...]

    def lines(self) -> list[str]:
        """One line per sentence, each saying what it is."""
        return [self.compared, *self.findings, *(f"Next: {each}" for each in self.advice)]


def verdict_of(evaluation: Evaluation) -> Verdict:
    """The verdict of an evaluation, on pairs or on tasks."""
    if isinstance(evaluation, PairEvaluation):
        return of_pairs(evaluation)
    assert isinstance(evaluation, TaskEvaluation)
    return of_tasks(evaluation)


def of_pairs(evaluation: PairEvaluation) -> Verdict:
    """By the ROC-AUC within domains, or where that is undefined by F1max on all pairs."""
    models, simulated = evaluation.models, bool(evaluation.settings.get("simulated"))
    view, metric = PAIR_WEIGHTED_MEAN, "roc_auc"
    if any(model.views[view].metrics[metric] is None for model in models):
        view, metric = POOLED, "f1_max"
    values = {model.label: model.views[view].metrics[metric] for model in models}
    known = {label: value for label, value in values.items() if value is not None}
    gaps = [each for each in evaluation.differences if (each.view, each.metric) == (view, metric)]
    counts, domains = models[0].pooled, len(models[0].domains)
    of_domains = f" of {domains} domains" if domains > 1 else ""
    split = f", {evaluation.settings['split']} split" if evaluation.settings.get("split") else ""
    negatives = evaluation.settings.get("pairs_settings", {}).get("negatives")
    split += f", {negatives} negatives" if negatives else ""
    compared = (
        f"{SIMULATED if simulated else ''}{names_of_measured(values)} on {counts.pairs:,} pairs{of_domains}, "
        f"{counts.positives:,} of them linked ({evaluation.settings.get('pairs', 'pairs')}{split})."
    )
    margin = float(evaluation.settings.get("margin", 0.01))
    same = evaluation.settings.get("same_model", {})
    findings, order = [], sorted(known.keys() - same.keys(), key=lambda label: -known[label])
    if order:
        figures = "; ".join(f"{label} {known[label]:.3f}" for label in order)
        findings = [
            f"{METRICS[metric]}, {VIEWS[view]}: {figures}.",
            *standing(order, gaps, pair_number, f"{margin:g}"),
        ]
    findings += [
        f"{label} and {first} are the same model (one fingerprint)." for label, first in same.items()
    ]
    runs_of = {model.label: model.runs or (model,) for model in models}
    copies = [label for label, runs in runs_of.items() if any(run.settings.get("untrained") for run in runs)]
    findings = [f"{label} is {UNTRAINED}." for label in copies] + findings
    trained = {model.label: model.seeds for model in models if model.trained and model.label not in copies}
    findings += [*single_runs(trained, len(models)), *told_without_texts(evaluation.text_free)]
    if negatives == "hard" and any(model.settings.get("model") == "tfidf" for model in models):
        findings.append("TF-IDF chose the hard negatives, so that its own figure is low by construction.")
    advice = [
        *([REAL_ARTICLES] if simulated else []),
        *([f"Train {listed(copies)} again: more steps, more pairs, another rate."] if copies else []),
        *missing_baseline([model.label for model in models if not model.trained], "minilm or tfidf"),
        *no_trained_model_ahead(order, trained),
        *more_seeds(trained, len(models)),
        *more_pairs(order, gaps, margin, counts.pairs),
        *audit_advice(evaluation.settings.get("pairs_settings", {})),
    ]
    return Verdict(compared, tuple(findings), tuple(advice[:MAX_ADVICE]))


def of_tasks(evaluation: TaskEvaluation) -> Verdict:
    """By the average over all datasets."""
    values = {model.label: model.average.value for model in evaluation.models}
    kinds = ", ".join(f"{kind} {count}" for kind, count in evaluation.types.items())
    data = evaluation.settings.get("tasks") or ", ".join(evaluation.settings.get("mteb", [])) or "tasks"
    compared = f"{names_of_measured(values)} on {len(evaluation.tasks)} tasks ({kinds}; {data})."
    if not values:
        missing = ("Give the command again when the tasks' data can be loaded.",)
        return Verdict(f"No task of {data} was measured.", (), missing)
    order = sorted(values, key=lambda label: -values[label])
    figures = "; ".join(f"{label} {100 * values[label]:.2f}" for label in order)
    margin = f"{100 * evaluation.settings['margin']:g} points"
    trained = {model.label: len(model.runs) for model in evaluation.models if model.trained}
    findings = [
        f"Average over datasets: {figures}.",
        *standing(order, evaluation.differences, points, margin),
    ]
    findings += single_runs(trained, len(values))
    advice = [
        *missing_baseline([model.label for model in evaluation.models if not model.trained], "minilm"),
        *no_trained_model_ahead(order, trained),
        *more_seeds(trained, len(values)),
    ]
    if evaluation.missing:
        advice.append(
            f"Give the command again for the {len(evaluation.missing)} tasks whose data was not there."
        )
    return Verdict(compared, tuple(findings), tuple(advice[:MAX_ADVICE]))


def of_analysis(analysis: Mapping[str, Any], settings: Mapping[str, Any]) -> Verdict:
    """By the mean over datasets of the correlation with human scores, under the first prompt."""
    prompt, datasets = analysis["prompts"][0], analysis["datasets"]
    own = [row for row in analysis["correlations"] if row["prompt"] == prompt]
    parts = list(dict.fromkeys(row["part"] for row in own))
    names = {part: PART_NAMES[part] for part in parts}
    values = {
        names[part]: sum(row["value"] for row in own if row["part"] == part) / len(datasets) for part in parts
    }
    order = sorted(values, key=lambda name: -values[name])
    of_prompt = f"prompt {prompt}" + (
        f", of {len(analysis['prompts'])}" if len(analysis["prompts"]) > 1 else ""
    )
    listed = ", ".join(f"{name} ({count:,})" for name, count in datasets.items())
    compared = (
        f"{names_of_measured(values)} of {settings.get('model', 'a language model')} on the rated pairs of "
        f"{listed}; {of_prompt}."
    )
    gaps = [
        Difference(
            names[each["first"]], names[each["second"]], View("average"), "spearman", each["value"],
            Interval(each["low"], each["high"]), p_holm=each["p_holm"],
        )
        for each in analysis["differences"]
    ]  # fmt: skip
    figures = "; ".join(f"{name} {100 * values[name]:.1f}" for name in order)
    findings = [f"Spearman's correlation with the scores × 100: {figures}.", *standing(order, gaps, points)]
    shares = analysis["complementarity"]["datasets"].values()
    alone = sum(each["one_alone"] for each in shares) / max(1, len(shares))
    findings.append(f"HS or RW alone is right about {alone:.0%} of the pairs: what joining them could gain.")
    advice = []
    if len(analysis["prompts"]) == 1:
        advice.append("Compare prompts with `prompts`: they often matter more than the part.")
    if "sum" in parts:
        advice.append(
            "Choose the weight of RW in the sum on pairs of your own: `develop` of `make_embedder`."
        )
    advice.append("Measure the leading part on tasks: `moee evaluate`.")
    return Verdict(compared, tuple(findings), tuple(advice[:MAX_ADVICE]))


def of_audit(audit: Audit) -> Verdict:
    """By the share of test pairs that leak, and what figures lose without them."""
    pairs, leaked = audit.pairs["test"], int(audit.leaks.leaked().sum())
    compared = (
        f"{SIMULATED if audit.simulated else ''}Audited {pairs:,} test pairs against "
        f"{audit.pairs['train']:,} training pairs ({audit.name})."
    )
    worst = max(LEAKS, key=lambda kind: int(audit.leaks.masks[kind].sum()))
    count = int(audit.leaks.masks[worst].sum())
    findings = ["No test pair leaks from training."]
    if leaked:
        findings = [
            f"{leaked / pairs:.1%} of the test pairs leak from training in some way; the most frequent: "
            f"{LEAKS[worst]} ({count:,} pairs)."
        ]
    findings += told_without_texts(audit.text_free)
    rows = {(each.model, each.test_set): each.figures for each in audit.measurements}
    whole, without = next(iter(WITHOUT)), CLEANED if leaked else None
    falls = False
    for model in dict.fromkeys(each.model for each in audit.measurements):
        before, after = rows[model, whole], rows.get((model, without or ""))
        text, fell = _change(model, before, after, without or "")
        findings += [text] if text else []
        falls = falls or fell
    advice = [REAL_ARTICLES] if audit.simulated else []
    if leaked / pairs > TOLERATED:
        advice.append("Compile the pairs with `split=paper` (or article) and train again.")
    if falls:
        advice.append(f"Report figures on the test pairs {without}; those on all pairs are partly memory.")
    if not any(each.model not in (TFIDF_LABEL, MEMORY_LABEL) for each in audit.measurements):
        advice.append(
            "Give `audit` models too: their figures with and without the leaks show how much these matter."
        )
    return Verdict(compared, tuple(findings), tuple(advice or ["Nothing to mend here; next, `evaluate`."]))


def _change(
    model: str, before: PairMetrics | None, after: PairMetrics | None, without: str
) -> tuple[str | None, bool]:
    """What a model's ROC-AUC is with and without leaks, and whether it falls by more than chance explains."""
    value = before.metrics["roc_auc"] if before else None
    if before is None or value is None:
        return None, False
    ends = _in_brackets(before)
    if model == MEMORY_LABEL:
        return f"The training pairs alone, without any text, reach ROC-AUC {value:.3f}{ends}.", False
    clean = after.metrics["roc_auc"] if after else None
    if after is None or clean is None or after.pairs == before.pairs:  # nothing of that kind leaks
        return f"{model}: ROC-AUC {value:.3f}{ends}.", False
    interval = after.intervals.get("roc_auc")
    fell = interval is not None and interval.high < value
    sure = "more than chance explains" if fell else "no more than chance may explain"
    sure = sure if interval is not None else "with unknown certainty"
    return (
        f"{model}: ROC-AUC {value:.3f}{ends}, and {clean:.3f}{_in_brackets(after)} {without}: "
        f"{clean - value:+.3f}, {sure}."
    ), fell


def _in_brackets(figures: PairMetrics) -> str:
    interval = figures.intervals.get("roc_auc")
    return f" ({interval.low:.3f} to {interval.high:.3f})" if interval else ""


def of_comparison(comparison: Comparison) -> Verdict:
    """By the routes whose vectors changed, and on pairs by the domains whose figures did."""
    routes = [each.route or "(none)" for each in comparison.changes]
    changed = [each.route or "(none)" for each in comparison.changes if not each.bit_equal]
    on = (
        f" and on the pairs of {listed(list(comparison.metrics))} ({comparison.pairs})"
        if comparison.metrics
        else ""
    )
    compared = (
        f"{SIMULATED if comparison.simulated else ''}Compared the model before and after by "
        f"{len(routes)} routes on {comparison.texts:,} texts{on}."
    )
    findings = ["Before and after are the same model (one fingerprint)."] if comparison.same else []
    findings += [f"The model {when} is {UNTRAINED}." for when in comparison.untrained]
    findings.append(f"{len(routes) - len(changed)} of {len(routes)} routes are bit-equal.")
    if changed:
        findings.append(f"Changed: {listed(changed)}.")
    for each in comparison.differences:
        findings.append(
            f"{each.view.domain}: " + " ".join(standing(in_order(each), [each], pair_number, f"{MARGIN:g}"))
        )
    for what, names in (("only before", comparison.only_before), ("only after", comparison.only_after)):
        findings += [f"Routes {what}: {listed(list(names))}."] if names else []
    advice = [REAL_ARTICLES] if comparison.simulated else []
    if changed and not comparison.metrics:
        advice.append("See with `pairs` whether the change of these routes helps or harms.")
    if any(each.value is not None and each.value > 0 and is_sure(each) for each in comparison.differences):
        advice.append("A domain became worse: keep the model before, or train that expert again.")
    if not changed:
        advice.append("Nothing changed for the routes that both have: the model after can take its place.")
    return Verdict(compared, tuple(findings), tuple(advice or ["Measure the model after with `evaluate`."]))

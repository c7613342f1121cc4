"""Verdicts name what was compared, and claim no more than the intervals support."""

from __future__ import annotations

from itertools import combinations

import pytest
from tests.report.conftest import invented

from sentence_experts.evaluation.estimates import Interval
from sentence_experts.evaluation.mteb.results import MeasuredTask, Run, join_runs
from sentence_experts.evaluation.results import Difference
from sentence_experts.report.content import html, markdown
from sentence_experts.report.moee import analysis_verdict
from sentence_experts.report.pairs import pairs_verdict
from sentence_experts.report.tasks import tasks_report, tasks_verdict
from sentence_experts.report.wording import describe_standing
from sentence_experts.report.write import report_of


def gap(value: float, low: float, high: float, p_holm: float, equivalent: bool = False) -> Difference:
    return Difference("a", "b", "pooled", "roc_auc", value, Interval(low, high), p_holm, p_holm, equivalent)


CASES = [
    (gap(0.1, 0.05, 0.15, 0.001), "a is ahead of b (+0.10; 95% interval +0.05 to +0.15)."),
    (gap(0.02, -0.05, 0.09, 0.4), "a cannot be told apart from b (+0.02; 95% interval -0.05 to +0.09)."),
    (
        gap(0.02, 0.001, 0.04, 0.07),
        "+0.04, but p 0.07 corrected for all comparisons",
    ),  # not after Holm's correction
    (gap(0.001, -0.004, 0.006, 0.6, True), "a is equivalent within 0.01 to b (+0.00;"),
    (gap(0.004, 0.001, 0.007, 0.01, True), "a is equivalent"),  # "significant", but of no account
    (Difference("a", "b", "pooled", "roc_auc", 0.1), "with unknown certainty: there are no intervals"),
]


@pytest.mark.parametrize(("found", "said"), CASES)
def test_only_what_the_interval_supports_is_claimed(found: Difference, said: str):
    (sentence,) = describe_standing(["a", "b"], [found], lambda value: f"{value:+.2f}", "0.01")
    assert said in sentence
    claims = [
        each for each in ("is ahead of", "cannot be told", "is equivalent", "leads") if each in sentence
    ]
    assert len(claims) == 1


def test_the_verdict_names_the_models_the_data_and_the_leader():
    found = pairs_verdict(invented(baseline=["<b>bad"]))
    assert found.compared == (
        "Compared good [bold] and <b>bad on 120 pairs of 2 domains, 60 of them linked (pairs, test split)."
    )
    assert found.findings[0].startswith("ROC-AUC, mean of the domains by their pairs: good [bold] 0.9")
    assert "good [bold] is ahead of <b>bad (+0." in found.findings[1]
    assert any("one training run" in each for each in found.findings)
    assert any("5 seeds" in each for each in found.advice)
    assert len([line for line in found.lines() if line.startswith("Next: ")]) <= 3


def test_untrained_runs_are_told_from_untrained_models():
    models = [*((f"mine #{number}", 0.4) for number in (1, 2, 3)), ("base", 0.2)]
    evaluation = invented(models=models, baseline=["base"])
    runs = evaluation.models[0].runs
    runs[0].settings["untrained"] = True
    found = pairs_verdict(evaluation)
    assert found.findings[0] == "mine #1 is UNTRAINED: identical to the base."
    assert not any("mine is" in each and "UNTRAINED" in each for each in found.findings)
    assert any("Train mine with 5 seeds" in each for each in found.advice)
    for run in runs:
        run.settings["untrained"] = True
    found = pairs_verdict(evaluation)
    assert found.findings[0] == "mine is UNTRAINED: identical to the base."
    assert not any("5 seeds" in each for each in found.advice)


@pytest.mark.usefixtures("undrawn")
def test_simulated_texts_are_named_so_first():
    evaluation = invented()
    evaluation.settings["simulated"] = True
    found = pairs_verdict(evaluation)
    assert found.compared.startswith("SIMULATED TEXTS")
    assert "SIMULATED" in found.advice[0]
    page = html(report_of(evaluation))
    assert page.index("SIMULATED TEXTS") < page.index("<table")


def test_a_single_model_is_to_be_compared_and_open_questions_stay_open():
    alone = pairs_verdict(invented(models=[("a", 0.4)]))
    assert alone.compared.startswith("Measured a on")
    assert "`baseline` minilm" in alone.advice[0]
    alike = pairs_verdict(invented(models=[("a", 0.2), ("b", 0.2)], baseline=["a", "b"]))
    assert any("cannot be told apart" in each for each in alike.findings)


def test_sets_of_one_class_are_judged_by_f1():
    found = pairs_verdict(invented(labels=lambda number: 1))
    assert found.findings[0].startswith("F1max, all pairs pooled")


def test_verdict_on_tasks():
    tasks = [MeasuredTask(f"sts{n}", "STS", "cosine_spearman", "r") for n in range(6)]
    runs = [
        Run(label, label, {}, {task.name: value + n / 100 for n, task in enumerate(tasks)})
        for label, value in (("mine", 0.6), ("base", 0.5))
    ]
    evaluation = join_runs(tasks, runs, {"tasks": "my tasks"}, baseline=["base"])
    found = tasks_verdict(evaluation)
    assert found.compared == "Compared mine and base on 6 tasks (STS 6; my tasks)."
    assert "mine is ahead of base (+10.00; 95% interval +10.00 to +10.00)" in found.findings[1]
    page = markdown(tasks_report(evaluation))
    assert page.index(found.findings[1]) < page.index("| Type |")
    nothing = tasks_verdict(join_runs(tasks, [], {"tasks": "my tasks"}, {"sts0": "ConnectionError"}))
    assert nothing.compared == "No task of my tasks was measured."


def test_verdict_on_parts_of_a_language_model():
    parts = {"hs": 0.5, "rw": 0.4, "concat": 0.55, "sum": 0.6}
    found = {
        "prompts": ["none"],
        "datasets": {"sts": 200},
        "correlations": [
            {"prompt": "none", "dataset": "sts", "part": part, "value": value}
            for part, value in parts.items()
        ],
        "differences": [
            {"first": a, "second": b, "value": parts[a] - parts[b], "p_holm": 0.001}
            | {"low": parts[a] - parts[b] - 0.01, "high": parts[a] - parts[b] + 0.01}
            for a, b in combinations(parts, 2)
        ],
        "complementarity": {"datasets": {"sts": {"one_alone": 0.25}}},
    }
    verdict = analysis_verdict(found, {"model": "tiny"})
    assert verdict.compared == (
        "Compared HS, RW, MoEE (concat) and MoEE (sum) of tiny on the rated pairs of sts (200); prompt none."
    )
    assert verdict.findings[1].startswith(
        "MoEE (sum) is ahead of MoEE (concat) (+5.00; 95% interval +4.00 to +6.00)"
    )
    assert "25% of the pairs" in verdict.findings[2]

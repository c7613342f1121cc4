from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from sentence_experts.evaluation.mteb.results import MeasuredTask, Run, join_runs
from sentence_experts.report.content import markdown
from sentence_experts.report.write import report_of

TASKS = [MeasuredTask(f"sts{n}", "STS", "cosine_spearman", "r") for n in range(4)]
TASKS += [
    MeasuredTask("nq", "Retrieval", "ndcg_at_10", "r"),
    MeasuredTask("odd", "Regression", "kendalltau", "r"),
]
SCORES = {"sts0": 0.5, "sts1": 0.7, "sts2": 0.6, "sts3": 0.6, "nq": 0.2, "odd": 0.4}


def run(label: str, model: str | None = None, plus: float = 0.0, without: str = "") -> Run:
    scores = {name: score + plus for name, score in SCORES.items() if name != without}
    return Run(label, model or label, {}, scores)


def test_averages_are_over_datasets_not_over_types():
    found = join_runs(TASKS, [run("a")])
    assert list(found.types.items()) == [("Retrieval", 1), ("STS", 4), ("Regression", 1)]
    model = found.models[0]
    assert model.types["STS"].value == pytest.approx(0.6)
    assert model.average.value == pytest.approx(sum(SCORES.values()) / 6)
    assert (model.average.spread, model.average.interval) == (None, None)


def test_three_seeds_give_a_t_interval():
    runs = [run(f"a #{n}", "a", plus) for n, plus in enumerate((-0.1, 0.0, 0.1))]
    figure = join_runs(TASKS, runs).models[0].types["STS"]
    half = t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert figure.value == pytest.approx(0.6)
    assert figure.spread == pytest.approx(0.1)
    assert figure.interval == pytest.approx((0.6 - half, 0.6 + half))
    equal = join_runs(TASKS, [run(f"a #{n}", "a") for n in range(3)]).models[0].types["STS"]
    assert equal.interval == (equal.value, equal.value)
    two = join_runs(TASKS, runs[:2]).models[0].types["STS"]
    assert two.spread is not None
    assert two.interval is None


def scaled(label: str, by: float, noise: float = 0.0, seed: int = 0) -> Run:
    generator = np.random.default_rng(seed)
    values = {name: score * by + noise * generator.normal() for name, score in SCORES.items()}
    return Run(f"{label} #{seed}", label, {}, values)


def test_differences_are_paired_by_dataset():
    (same,) = join_runs(TASKS, [run("a", plus=0.1), run("b")]).differences
    assert same.value == pytest.approx(0.1)
    assert (same.interval.low, same.interval.high) == pytest.approx((0.1, 0.1))  # on every dataset
    (uneven,) = join_runs(TASKS, [scaled("c", 1.5), run("b")]).differences
    half = t.isf(0.025, 5) * np.std([score / 2 for score in SCORES.values()], ddof=1) / 6**0.5
    assert uneven.value == pytest.approx(0.25)
    assert (uneven.interval.low, uneven.interval.high) == pytest.approx((0.25 - half, 0.25 + half))
    # Few datasets are taken as they are, so that single runs have nothing that varies.
    assert join_runs(TASKS[:4], [run("a"), run("b")]).differences[0].interval is None


@pytest.mark.parametrize("tasks", [TASKS[:3], TASKS], ids=["fixed datasets", "drawn datasets"])
def test_differences_cover_the_seeds_and_pair_them(tasks: list[MeasuredTask]):
    runs = [
        scaled(label, 1.0, noise, seed) for label, noise in (("a", 0.05), ("b", 0.1)) for seed in range(5)
    ]
    (found,) = join_runs(tasks, runs).differences
    gaps = [
        np.mean([a.scores[task.name] - b.scores[task.name] for task in tasks])
        for a, b in zip(runs[:5], runs[5:], strict=True)
    ]
    of_seeds = t.isf(0.025, 4) * np.std(gaps, ddof=1) / 5**0.5
    half = (found.interval.high - found.interval.low) / 2
    assert found.value == pytest.approx(np.mean(gaps))
    if len(tasks) < 5:
        assert half == pytest.approx(of_seeds)
    else:
        assert half > 0.7 * of_seeds  # more degrees of freedom
    assert found.p_holm == found.p_value
    three = join_runs(tasks, [*runs, scaled("c", 1.0, 0.02), scaled("c", 1.0, 0.02, 1)]).differences
    assert all(each.p_holm >= each.p_value for each in three)


def test_equal_ways_of_training_are_equivalent_within_the_margin():
    runs = [scaled(label, 1.0, 0.002, first + n) for label, first in (("a", 0), ("b", 5)) for n in range(5)]
    assert join_runs(TASKS, runs, margin=0.01).differences[0].equivalent
    assert not join_runs(TASKS, runs, margin=1e-4).differences[0].equivalent


def test_task_missing_in_one_run_is_left_out():
    found = join_runs(TASKS, [run("a"), run("b", without="nq")], missing={"nq": "ConnectionError"})
    assert "nq" not in {task.name for task in found.tasks}
    assert [model.average.value for model in found.models] == pytest.approx([0.56, 0.56])
    assert "Not measured, and not part of any average: nq." in markdown(report_of(found))
    nothing = join_runs(TASKS[:1], [run("a", without="sts0")], missing={"sts0": "ConnectionError"})
    assert (nothing.models, list(report_of(nothing).tables())) == ((), [])
    assert "sts0" in markdown(report_of(nothing))


def test_tables_are_in_percent():
    runs = [run(f"a|b #{n}", "a|b", plus) for n, plus in enumerate((-0.1, 0.0, 0.1))]
    found = join_runs(TASKS, [*runs, run("c")])
    rows = {name: cells for name, _, *cells in next(report_of(found).tables()).rows}
    assert rows["STS (4)"] == ["60.00\n±10.00 35.16 to 84.84", "60.00"]
    assert rows["Average over datasets (6)"][1] == "50.00"
    page = markdown(report_of(found))
    assert r"| Type | Metric | a\|b (3 seeds) | c |" in page
    assert "| sts0 | Spearman |" in page

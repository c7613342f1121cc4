"""Code that studies share: finished runs survive a kill, and intervals decide how differences are told."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import claims_domain
import conflict_control
import real_conflict
import sentence_experts
import study
import study_models
from helpers.samples import make_tiny_encoder
from sentence_experts.compat.sentence_transformers import transformer_of
from sentence_experts.evaluation.estimates import Runs, ScoredPairs
from study import Test, blind_table


def test_a_killed_study_continues_after_its_last_whole_run(tmp_path: Path) -> None:
    runs = study.RunFile(tmp_path, "some", {"steps": 20})
    for seed in (1, 0):
        runs.append({"arm": "dense", "seed": seed})
    with open(tmp_path / "some.jsonl", "a", encoding="utf-8") as file:
        file.write('{"arm": "dense", "se')
    again = study.RunFile(tmp_path, "some", {"steps": 20})
    assert [row["seed"] for row in again.find(arm="dense")] == [0, 1]
    assert [again.find(arm="dense", seed=seed) != [] for seed in (1, 2)] == [True, False]
    again.append({"arm": "dense", "seed": 2})
    assert len(study.RunFile(tmp_path, "some", {"steps": 20}).rows) == 3
    with pytest.raises(SystemExit, match=r"other settings \(steps\)"):
        study.RunFile(tmp_path, "some", {"steps": 40})


def test_published_runs_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "RESULTS", tmp_path / "results")
    runs = study.RunFile(tmp_path / "runs", "some", {"steps": 20})
    runs.append({"arm": "dense", "seed": 0, "scores": {"a": [1, 2]}})
    study.write_study({"made_by": "a test"}, runs, "# Title")
    assert study.RunFile(tmp_path / "elsewhere", "some", {"steps": 20}).rows == runs.rows


def _arm(better_by: float, noise: float) -> Runs:
    """Five runs on 400 independent pairs; the noise of the pairs is the same for all arms."""
    random = np.random.default_rng(0)
    labels = np.arange(400) % 2
    ids = [[f"{side} {number}" for number in range(400)] for side in "ab"]
    test = {"only": ScoredPairs(np.zeros(400), labels, *ids)}
    common = random.normal(size=400)
    own = np.random.default_rng(round(1000 * better_by))
    scores = [common + (1 + better_by) * labels + noise * own.normal(size=400) for _ in range(5)]
    return Runs.joined([study.auc_of(test, {"only": each.tolist()}) for each in scores])


def test_a_difference_is_better_equal_or_undecided() -> None:
    arms = {
        "plain": _arm(0.0, 0.01),
        "same": _arm(0.001, 0.01),
        "ahead": _arm(0.5, 0.01),
        "noisy": _arm(0.01, 2),
    }
    pairs = [
        ("ahead", "plain"),
        ("plain", "ahead"),
        ("same", "plain"),
        ("noisy", "plain"),
        ("absent", "plain"),
    ]
    told = {(one.first, one.second): one for one in study.differences(arms, pairs, margin=0.01)}
    assert ("absent", "plain") not in told
    verdicts = {pair: one.verdict for pair, one in told.items()}
    assert (verdicts["ahead", "plain"], verdicts["plain", "ahead"]) == ("better", "worse")
    assert verdicts["same", "plain"] == "equal within 0.01"
    assert told["ahead", "plain"].estimate.value == pytest.approx(-told["plain", "ahead"].estimate.value)


def test_what_sees_no_route_scores_one_half_on_conflicting_pairs() -> None:
    questions = {f"intent {n}": [f"question {n} {m}" for m in range(40)] for n in range(20)}
    for routes in (2, 4):
        pairs = conflict_control.test_pairs(questions, routes, 60)
        texts = [part for text in (*pairs.first, *pairs.second) for part in text.split("question")[1:]]
        assert len(set(texts)) == len(texts) == 2 * 60 * routes, "no question comes twice"
        by_route = pairs.by_route(routes)
        scores = np.random.default_rng(routes).normal(size=60).tolist()
        assert study.auc_of(by_route, dict.fromkeys(by_route, scores)).values[0] == pytest.approx(0.5)


def test_arms_with_fewer_seeds_are_paired_with_the_same_seeds_of_others() -> None:
    five, other = _arm(0.0, 0.01), _arm(0.1, 0.01)
    two = Runs(other.values[:2], other.influence[:2], other.averaged[:2], other.sharing)
    (told,) = study.differences({"five": five, "two": two}, [("two", "five")], margin=0.01)
    assert told.estimate.value == pytest.approx(float((other.values[:2] - five.values[:2]).mean()))


def test_steps_and_what_reaches_the_goal_are_reported_for_each_part() -> None:
    def run(*figures: float) -> study.Row:
        return {
            "curve": [{"step": 60 * n, "seconds": n, "auc": auc} for n, auc in enumerate(figures, start=1)]
        }

    part = conflict_control.PARTS["routes4"]
    fast, slow = conflict_control.FAST
    found = {fast: [run(0.5, 0.6, 0.9, 0.95), run(0.5, 0.7, 0.8, 0.94)], slow: [run(0.5, 0.5, 0.5, 0.6)] * 2}
    told = conflict_control.curve_table(part, found)
    assert "240 steps take" in told
    assert "2 of 2: 180 or 240 steps" in told
    assert f"{fast} - {slow}, over seeds | 2 | +0.000" in told
    assert "0 of 2" in told
    unpaired = conflict_control.curve_table(part, {**found, slow: found[slow][:1]})
    assert "over seeds" not in unpaired


def test_masked_articles_name_no_organism() -> None:
    text = "A kinase of mice, fruit flies and E. coli: Drosophila melanogaster and budding yeast, lentiviral"
    masked = real_conflict.Article(text, ("neuroscience",), "mouse").masked()
    assert (
        masked.text == "A kinase of organism, organism and organism: organism organism and organism, organism"
    )
    assert (masked.subjects, masked.organism) == (("neuroscience",), "mouse")
    assert masked.masked() == masked


def test_an_organism_has_one_name() -> None:
    names = ["Mouse", "mouse", " D. melanogaster", "Drosophila  melanogaster", "fruit fly", "Volvox", "frog"]
    told = [real_conflict.normalised(name) for name in names]
    assert told == ["mouse"] * 2 + ["d. melanogaster"] * 3 + ["volvox", "frog"]
    assert all(real_conflict.normalised(name) == name for name in real_conflict.SAME.values())


def test_pairs_of_a_real_conflict_have_each_text_as_often_in_both_kinds() -> None:
    random = np.random.default_rng(0)
    drawn = random.choice(5, size=(90, 2), p=[0.5, 0.2, 0.1, 0.1, 0.1])
    same = drawn[:, None] == drawn[None]
    alike = {
        route: [set(np.flatnonzero(same[n, :, own] & ~same[n, :, 1 - own]).tolist()) for n in range(90)]
        for own, route in enumerate(real_conflict.ROUTES)
    }
    pairs = real_conflict.sides_of_rectangles(alike, 40, random)
    assert len({pair[:2] for pair in pairs}) == len(pairs) == 80
    assert all(other in alike[route][one] for one, other, route in pairs)
    times = [
        Counter(end for pair in pairs if pair[2] == route for end in pair[:2])
        for route in real_conflict.ROUTES
    ]
    assert times[0] == times[1]


def test_faster_tokens_go_further_and_all_else_as_far(tmp_path: Path, minilm: str) -> None:
    path = make_tiny_encoder(tmp_path / "tiny", minilm, ("left", "right"))
    moved = []
    for factor in (1.0, 5.0):
        model = sentence_experts.load(path, device="cpu")
        weight = transformer_of(model).get_input_embeddings().weight
        before = weight.detach().clone()
        faster = study_models.FasterTokens(model, ["[LEFT]", "[RIGHT]"], factor)
        weight.grad = torch.ones_like(weight)
        faster.step(torch.optim.SGD([weight], lr=0.01))
        moved.append((weight.detach() - before).mean(1))
    further = moved[1] / moved[0]
    assert (further > 4.9).sum() == 2
    assert torch.allclose(further[:-2], torch.ones(()), atol=1e-3)


def test_scores_that_compare_no_texts_find_what_one_text_tells() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(200) % 2
    telling = [f"{'linked' if label else 'apart'} {n}" for n, label in enumerate(labels)]
    plain, other = ([f"word {random.integers(50)} {side}{n}" for n in range(200)] for side in "xy")
    ids = [[f"{side} {n}" for n in range(200)] for side in "ab"]
    pairs = ScoredPairs(np.zeros(200), labels, *ids)
    told = {
        name: dict(
            re.findall(r"\| ([a-z ]+) \| ([\d.]+) \(", blind_table({"one": Test(first, plain, pairs)}))
        )
        for name, first in (("telling", telling), ("plain", other))
    }
    assert float(told["telling"]["each text alone"]) > 0.95
    assert 0.3 < float(told["plain"]["each text alone"]) < 0.7


def test_a_run_names_its_machine_where_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(study, "hardware", lambda: "old machine")
    runs = study.RunFile(tmp_path / "runs", "some", {})
    runs.append({"arm": "dense", "seed": 0, "small": None})
    study.write_study({}, runs, "# Title")
    monkeypatch.setattr(study, "hardware", lambda: "new machine")
    again = study.RunFile(tmp_path / "elsewhere", "some", {})
    study.write_study({}, again, "# Title")
    assert "new machine" not in (tmp_path / "results" / "some.md").read_text(encoding="utf-8")
    again.append({"arm": "dense", "seed": 1, "small": None})
    study.write_study({}, again, "# Title")
    told = (tmp_path / "results" / "some.md").read_text(encoding="utf-8")
    assert "old machine (1 runs); new machine (1 runs)" in told
    third = study.RunFile(tmp_path / "third", "some", {})
    assert [row["hardware"] for row in third.find(arm="dense", small=None)] == ["old machine", "new machine"]


def test_each_table_of_the_page_of_studies_stands_in_the_results_that_its_section_names() -> None:
    root = Path(__file__).parents[1]

    def rows(text: str) -> list[str]:
        lines = [" ".join(line.split()) for line in text.splitlines() if line.startswith("|")]
        return [line for line in lines if set(line) - set("|-: ")]

    results = root / "benchmarks" / "results"
    page = (results / "studies.md").read_text(encoding="utf-8")
    sections = page.split("\n## ")[2:]  # the first sums up the others
    assert len(sections) >= 6
    for section in sections:
        names = re.findall(r"\]\((\w+\.md)\)", section)
        published = {row for name in names for row in rows((results / name).read_text(encoding="utf-8"))}
        assert names, section[:80]
        assert not [row for row in rows(section) if row not in published]


def test_the_share_of_a_gain_has_the_interval_of_its_ratio() -> None:
    none, some, every = (_arm(better, noise=0.3) for better in (0.0, 0.4, 2.0))
    gain = every.values.mean() - none.values.mean()
    share = (some.values.mean() - none.values.mean()) / gain
    at_share = claims_domain.way(none, every, some, float(share))
    assert at_share is not None
    assert abs(at_share.value) < 1e-12
    told = claims_domain.share_of_way(none, every, some)
    low, high = (int(found) / 100 for found in re.findall(r"(\d+)%", told)[1:])
    assert low < share < high
    assert high - low < 0.3
    same = _arm(0.001, noise=0.3)
    assert "any share is possible" in claims_domain.share_of_way(none, same, some)

"""The study of how much of a model a route needs: its plan, its batches, its figures from rows alone."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch

import capacity
import capacity_data
import capacity_models
import capacity_overview
import capacity_report
import capacity_runs
import study
from capacity_data import DataSet, Folders
from helpers.samples import make_tiny_encoder
from sentence_experts.pairs.labels import LabelColumn, read_labels
from sentence_experts.training.labelled_texts import TEST, TRAIN, VALIDATION, LabelledTexts

COLOURS, SHAPES = ("red", "green", "blue", "black"), ("circle", "square", "star")


def _texts(folders: Folders | None = None) -> LabelledTexts:
    rng = np.random.default_rng(0)
    rows = [(str(rng.choice(COLOURS)), str(rng.choice(SHAPES)), n) for n in range(200)]
    labels = {
        name: read_labels([[row[place]] for row in rows], LabelColumn(name, None, name))
        for place, name in enumerate(("colour", "shape"))
    }
    sets = {TRAIN: np.arange(100), VALIDATION: np.arange(100, 140), TEST: np.arange(140, 200)}
    texts = [f"{one} {other} {n}" for one, other, n in rows]
    return LabelledTexts(texts, np.arange(200), labels, np.arange(200), sets, {})


@pytest.fixture
def tiny(tmp_path: Path, minilm: str, monkeypatch: pytest.MonkeyPatch) -> study.RunFile:
    """A study of one small set with a tiny base, and no runs yet."""
    base = make_tiny_encoder(tmp_path / "tiny", minilm, ())
    monkeypatch.setattr(capacity_runs, "BASE", str(base))
    monkeypatch.setattr(capacity, "HEAD_STEPS", 10)
    for place in (capacity_report, capacity):
        monkeypatch.setattr(place, "RESULTS", tmp_path)
        monkeypatch.setattr(place, "SETS", {capacity.MOST: DataSet(capacity.MOST, _texts, 2, 16, 8, 8)})
    return study.RunFile(tmp_path, "capacity", {})


def test_each_arm_has_its_rates_before_its_seeds_and_no_run_is_planned_twice() -> None:
    keys = list(capacity.plan())
    assert len({tuple(sorted(key.items())) for key in keys}) == len(keys)
    for place, key in enumerate(keys):
        arm = capacity.ARMS.get(key["arm"])
        if arm is not None and key["arm"] in capacity.TRAINED and key["stage"] != "rate":
            data, like = (capacity.LIKE.get(key[part], key[part]) for part in ("data", "arm"))
            found = [
                other["rate"]
                for other in keys[:place]
                if (other["data"], other["arm"], other["stage"]) == (data, like, "rate")
            ]
            assert found == list(arm.rates) == list(capacity.ARMS[like].rates)


def test_shards_divide_the_plan_and_keep_an_arm_of_a_set_together() -> None:
    given = argparse.Namespace(
        only=list(capacity.SETS), arms=None, stages=("rate", "seed"), seeds=5, shard="0/1"
    )
    whole = capacity.wanted(given)
    parts = [
        capacity.wanted(argparse.Namespace(**{**vars(given), "shard": f"{number}/3"})) for number in range(3)
    ]
    assert sum(map(len, parts)) == len(whole)
    cells = [{(key["data"], key["arm"]) for key in part} for part in parts]
    assert not cells[0] & cells[1] | cells[1] & cells[2] | cells[0] & cells[2]


def test_texts_that_share_a_label_are_no_negatives() -> None:
    random = torch.Generator().manual_seed(0)
    anchors, positives = (
        torch.nn.functional.normalize(torch.randn(4, 8, generator=random), dim=1) for _ in "ab"
    )
    known = np.zeros((4, 4), bool)
    known[0, 2] = True
    found = capacity_models.info_nce(anchors, positives, known)
    rows = []
    for one in range(4):
        scores = [float(anchors[one] @ each) / capacity_models.TEMPERATURE for each in positives]
        against = [score for n, score in enumerate(scores) if not known[one, n]]
        rows.append(np.log(np.exp(against).sum()) - scores[one])
    assert float(found) == pytest.approx(np.mean(rows), abs=1e-5)


def test_few_pairs_are_as_many_and_know_nothing_of_each_other() -> None:
    data = _texts()
    labels, groups = data.labels_of("colour", TRAIN), data.groups_of(TRAIN)
    few = capacity_data.few_pairs(labels, groups, 10, seed=1)
    pairs = [few.matrix[:, [n]].nonzero()[0] for n in range(len(few.names))]
    assert len({tuple(sorted(pair)) for pair in pairs}) == len(pairs) == 10
    assert all(labels.alike(pair[:1], pair[1:])[0] for pair in pairs)
    other = capacity_data.few_pairs(labels, groups, 10, seed=2)
    assert (few.matrix != other.matrix).nnz


def test_a_gloss_loses_its_topic_and_its_examples(tmp_path: Path) -> None:
    line = (
        "00001740 07 n 02 scratch 0 Scrape 0 003 @ 00001930 n 0000 ;c 00002452 n 0000 + 01 v 0101 "
        '| (golf) (sport) a handicap of zero; "a scratch golfer"  '
    )
    ((number, synset),) = capacity_data._synsets(["  1 licence", line])
    assert number == "00001740"
    assert synset == ("07", "scratch", [("@", "00001930"), (";c", "00002452")], "a handicap of zero")
    with pytest.raises(SystemExit, match="wordnet-base"):
        capacity_data.wordnet(Folders(tmp_path, tmp_path))


def test_questions_of_a_test_stand_in_one_text_and_in_no_other_set(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [
        {f"intent {n}": [f"<{half} {n} {m}>" for m in range(20)] for n in range(6)} for half in ("old", "new")
    ]
    monkeypatch.setattr(capacity_data.conflict_control, "questions", lambda: tuple(halves))
    data = capacity_data.banking(Folders(Path(), Path()), routes=3)
    questions = {
        part: [question for row in rows for question in data.texts[row].split("> <")]
        for part, rows in data.sets.items()
    }
    bare = {part: [one.strip("<>") for one in own] for part, own in questions.items()}
    assert len(set(bare[TEST])) == len(bare[TEST]) == 120
    assert not set(bare[TRAIN]) & set(bare[VALIDATION])
    row = data.sets[TEST][0]
    third = data.labels["third"]
    intent = bare[TEST][2].split()[1]
    assert third.names[third.matrix[[row]].indices[0]] == f"intent {intent}"


@pytest.mark.parametrize(
    "arm", ["dense", "dense, mixed batches", "adapter, rank 8", "separate", "head and base"]
)
@pytest.mark.slow
def test_only_the_weights_of_the_arm_are_trained(tiny: study.RunFile, arm: str) -> None:
    bench = capacity_runs.Bench(capacity.SETS[capacity.MOST], Folders(Path(), Path()), "cpu")
    own = capacity.ARMS[arm]
    model, tokens = bench.model_of(own)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    key = {"stage": "seed", "seed": 0}
    list(capacity_models.train_model(model, tokens, bench.known(key), 1e-2, 0, 4, own.mixed))
    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved
    assert moved <= set(model.trained())
    counts = model.counts()
    assert (counts["owned"] > 0) == (not arm.startswith("dense"))
    assert (counts["shared"] == 0) == (arm in ("adapter, rank 8", "separate"))


@pytest.mark.slow
def test_runs_are_made_once_and_their_figures_follow_from_the_rows(
    tiny: study.RunFile, tmp_path: Path
) -> None:
    folders = Folders(tmp_path, tmp_path)
    benches = {capacity.MOST: capacity_runs.Bench(capacity.SETS[capacity.MOST], folders, "cpu")}
    keys = [
        key
        for key in capacity.plan()
        if key["data"] == capacity.MOST
        and key["arm"] in ("base", "head", "head and base", "dense", "expert") and key["seed"] < 2
        and key["stage"] != "long" and key.get("pairs", 10) == 10
    ]  # fmt: skip
    capacity.make_runs(tiny, benches, keys)
    made = len(tiny.rows)
    compared = len(tiny.find(stage="whole"))
    assert made - compared == len(keys) - sum(key["arm"] == "best trained" for key in keys)
    capacity.make_runs(tiny, benches, keys)
    assert len(tiny.rows) == made
    own = capacity_report.SetRuns(capacity.SETS[capacity.MOST], folders, tiny)
    for arm, rows in own.arms.items():
        assert own.ndcg(rows).values == pytest.approx([row["mean"] for row in rows], abs=2e-3), arm
    blind = np.mean([own.auc(own.arms["base"][0], route) for route in own.tests])
    assert blind == pytest.approx(0.5, abs=1e-3)
    for arm in ("dense", "expert"):
        rates = sorted(tiny.find(arm=arm, stage="rate"), key=lambda row: -row["validation"])
        close = [row["rate"] for row in rates[:2] if rates[0]["validation"] - row["validation"] <= 0.01]
        whole = tiny.find(arm=arm, stage="whole")
        assert [row["rate"] for row in whole] == close
        best = max(whole, key=lambda row: row["validation"])
        assert {row["rate"] for row in tiny.find(arm=arm, stage="seed")} == {best["rate"]}
        assert tiny.find(arm=arm, stage="seed")[0]["ndcg"] == best["ndcg"]
    capacity_report.write(tiny, folders, "8 of 10", "the plan", tmp_path / "capacity.svg")
    told = (tmp_path / "capacity.md").read_text(encoding="utf-8")
    assert f"{capacity.MOST}: expert - {capacity.MOST}: dense" in told
    assert "| head | 10 | 2 |" in told
    assert (tmp_path / "capacity.svg").is_file()


@pytest.mark.slow
def test_validation_keeps_the_best_step(tiny: study.RunFile, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = capacity_runs.Bench(capacity.SETS[capacity.MOST], Folders(Path(), Path()), "cpu")
    figures, states = [0.5, 0.7, 0.6, 0.65, 0.5, 0.68, 0.69], []

    def state(model: capacity_models.RouteModel) -> torch.Tensor:
        return torch.cat([weight.detach().flatten().clone() for weight in model.trained().values()])

    def validate(model: capacity_models.RouteModel, tokens: capacity_models.Tokens) -> float:
        states.append(state(model))
        return figures[len(states) - 1]

    encoded = bench.encoded
    tested = []
    monkeypatch.setattr(bench, "validation", validate)
    monkeypatch.setattr(
        bench, "encoded", lambda model, *rest: (tested.append(state(model)), encoded(model, *rest))[1]
    )
    key = {"data": capacity.MOST, "arm": "dense", "stage": "seed", "seed": 0}
    found = bench.run(capacity.ARMS["dense"], key, 1e-3, 12)
    assert [figure for _, figure in found["curve"]] == figures
    assert (found["kept"], found["validation"]) == (2, 0.7)
    assert [torch.equal(tested[0], each) for each in states] == [False, True, *[False] * 5]


def test_lines_of_several_processes_are_all_kept(tmp_path: Path) -> None:
    one, other = (study.RunFile(tmp_path, "some", {}) for _ in range(2))
    one.append({"arm": "a"})
    other.append({"arm": "b"})
    third = study.RunFile(tmp_path, "some", {})
    one.append({"arm": "c"})
    assert [row["arm"] for row in third.rows] == ["a", "b"]
    file = (tmp_path / "some.jsonl").stat().st_ino
    assert [row["arm"] for row in study.RunFile(tmp_path, "some", {}).rows] == ["a", "b", "c"]
    assert (tmp_path / "some.jsonl").stat().st_ino == file, "others may be writing to it"


@pytest.mark.slow
def test_a_text_is_in_as_many_conflicting_pairs_of_one_route_as_of_the_other() -> None:
    data = _texts()
    (found,) = capacity_data.conflicts_of(data)
    counts = [np.bincount(pairs.ravel(), minlength=60) for pairs in (found.by_one, found.by_other)]
    assert counts[0].sum() == 2 * len(found.by_one) > 60
    assert np.array_equal(*counts)
    labels = [data.labels_of(route, TEST) for route in ("colour", "shape")]
    for one, other, pairs in ((*labels, found.by_one), (*labels[::-1], found.by_other)):
        assert one.alike(*pairs.T).all()
        assert not other.alike(*pairs.T).any()
    ((name, pairs, alike),) = capacity_data.pairs_of("shape", [found])
    assert name == "colour"
    assert np.array_equal(pairs[alike == 1], found.by_other)


def test_tables_of_a_page_are_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Before.\n\n<!-- table: one -->\nold\n<!-- end -->\n\nMiddle.\n\n"
        "<!-- table: other -->\nkept\n<!-- end -->\n",
        encoding="utf-8",
    )
    capacity_overview.fill_pages({"one": "| a\\1 |", "absent": "x"}, [page])
    capacity_overview.fill_pages({"one": "| b\\1 |"}, [page])
    assert page.read_text(encoding="utf-8") == (
        "Before.\n\n<!-- table: one -->\n| b\\1 |\n<!-- end -->\n\nMiddle.\n\n"
        "<!-- table: other -->\nkept\n<!-- end -->\n"
    )


@pytest.mark.slow
def test_points_of_the_figure_are_the_gains_of_experts(tiny: study.RunFile, tmp_path: Path) -> None:
    routes = list(_texts().labels)
    figures = {"base": (0, 0), "head": (0.9, 100), "dense": (0.5, 900), "expert": (0.6, 300)}
    own = capacity_report.SetRuns(capacity.SETS[capacity.MOST], Folders(tmp_path, tmp_path), tiny)
    for arm, (validation, ndcg) in figures.items():
        found = {route: [ndcg] * len(own.queries[route].queries) for route in routes}
        cosines = {
            route: [0] * sum(len(test.first) for test in own.tests[route].values()) for route in routes
        }
        key = {"data": capacity.MOST, "arm": arm, "stage": "seed", "seed": 0, "validation": validation}
        tiny.append({**key, "ndcg": found, "cosines": cosines})
    assert [gain for *_, gain in capacity_overview.points({capacity.MOST: own})] == pytest.approx([0.2, 0.2])

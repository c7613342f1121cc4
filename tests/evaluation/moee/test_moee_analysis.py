"""The whole analysis on planted states: what is put in comes out."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from helpers.planted_embedder import PlantedEmbedder
from helpers.small_language_models import make_language_model
from sentence_experts.errors import UsageError
from sentence_experts.evaluation.moee import analysis
from sentence_experts.evaluation.moee.analysis import Analysis, analyse, analyse_states
from sentence_experts.evaluation.moee.make_and_evaluate import evaluate_parts, make_embedder
from sentence_experts.evaluation.moee.rated_pairs import RatedPairs
from sentence_experts.moee.embedder import MoeEmbedder
from sentence_experts.moee.vectors import States
from sentence_experts.report.content import html
from sentence_experts.report.write import report_of

PAIRS = 80
SETTINGS = {"model": "planted & <random>"}


def planted(name: str, seed: int) -> RatedPairs:
    generator = np.random.default_rng(seed)
    first = [f"rice {name} {n}" for n in range(PAIRS)]
    second = [f"sleep {name} {n}" for n in range(PAIRS)]
    return RatedPairs(name, first, second, generator.uniform(0, 5, PAIRS))


DATASETS = [planted("one", 0), planted("two", 1)]
SCORES = {(data.name, n): score / 5 * np.pi / 2 for data in DATASETS for n, score in enumerate(data.scores)}


def read(prompt: str, texts: list[str]) -> States:
    """HS: the angle of a pair is its score, so cosines rank against it; under "noise" chance. RW: chance."""
    generator = np.random.default_rng(sum(map(ord, prompt)))
    rows = []
    for text in texts:
        kind, name, number = text.split()
        angle = 0.0 if kind == "rice" else np.pi / 2 - SCORES[name, int(number)]
        rows.append([np.cos(angle), np.sin(angle)])
    noise = generator.normal(size=(len(texts), 6)).astype(np.float32)
    hidden = noise[:, :2] if prompt == "noise" else np.array(rows, dtype=np.float32)
    return States(hidden, noise)


@pytest.fixture(scope="module")
def found() -> dict:
    return analyse_states(
        PlantedEmbedder(read), DATASETS, prompts=["plain", "noise"], clusters=2, bootstrap=200
    )


def test_datasets_in_another_order_are_another_analysis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts of the first are clustered."""
    embedder = PlantedEmbedder(read)
    embedder.fingerprint, embedder.settings = "planted", dict.fromkeys(("standard", "standard_batch"))
    embedder.reader = SimpleNamespace(name="planted", settings=dict)
    embedder.with_cache = lambda folder: embedder
    monkeypatch.setattr(analysis, "load_embedder", lambda model: embedder)
    out, settings = tmp_path / "out", {"prompts": ["plain"], "clusters": 2, "bootstrap": 0}
    for _ in range(2):
        found = analyse("planted", DATASETS, out=out, **settings)
        assert found.figures["clusters"]["dataset"] == "one"
    with pytest.raises(UsageError, match=r"made with another first dataset \(one\)"):
        analyse("planted", DATASETS[::-1], out=out, **settings)


def test_an_embedder_in_memory_stays_as_it_is(tmp_path: Path, pairs_folder: Path) -> None:
    base = make_language_model(tmp_path / "base", "olmoe")
    embedder = MoeEmbedder(str(base), prompt="none", device="cpu")
    fingerprint, vectors = embedder.fingerprint, embedder.encode(["rice"])
    for _ in range(2):  # the second time the finished analysis is read
        analyse(embedder, DATASETS[0], out=tmp_path / "out", prompts=["none"], clusters=2, bootstrap=0)
    evaluate_parts(embedder, pairs_folder, out=tmp_path / "evaluation", parts=["rw"], bootstrap=0)
    assert all((tmp_path / name / "states").is_dir() for name in ("out", "evaluation"))
    assert embedder.fingerprint == fingerprint
    assert np.array_equal(embedder.encode(["rice"]), vectors)


def test_a_script_that_makes_an_embedder_and_measures_it_can_be_run_again(
    tmp_path: Path, pairs_folder: Path
) -> None:
    base = make_language_model(tmp_path / "base", "olmoe")
    tables = []
    for _ in range(2):
        embedder = make_embedder(base, tmp_path / "made", parts="rw", device="cpu")
        measured = evaluate_parts(embedder, pairs_folder, out=tmp_path / "out", parts=["rw"], bootstrap=0)
        tables.append(measured.to_pandas())
    assert set(tables[0]["model"]) == {"made-rw"}
    pd.testing.assert_frame_equal(*tables)


def test_fitted_standard_scores_belong_to_one_prompt() -> None:
    embedder = PlantedEmbedder(read)
    embedder.fitted, embedder.settings = object(), {"prompt": "plain"}
    with pytest.raises(UsageError, match="fitted under the prompt 'plain'"):
        analyse_states(embedder, DATASETS, prompts=["plain", "noise"], clusters=2, bootstrap=0)
    found = analyse_states(embedder, DATASETS, clusters=2, bootstrap=0)
    assert {row["prompt"] for row in found["correlations"]} == {"plain"}


def value(found: dict, **wanted: str) -> dict:
    rows = [row for row in found["correlations"] if all(row[key] == one for key, one in wanted.items())]
    assert len(rows) == 1
    return rows[0]


def test_correlations_of_parts(found):
    assert value(found, prompt="plain", dataset="one", part="hs")["value"] == pytest.approx(1)
    assert abs(value(found, prompt="plain", dataset="one", part="rw")["value"]) < 0.3
    assert abs(value(found, prompt="noise", dataset="two", part="hs")["value"]) < 0.3
    assert len(found["correlations"]) == 2 * 2 * 4


def test_stability_is_mean_and_variance_over_prompts(found):
    (row,) = [row for row in found["stability"] if (row["dataset"], row["part"]) == ("one", "hs")]
    values = [value(found, prompt=prompt, dataset="one", part="hs")["value"] for prompt in ("plain", "noise")]
    assert row["mean"] == pytest.approx(np.mean(values))
    assert row["variance"] == pytest.approx(np.var(values, ddof=1))


def test_correlations_between_prompts(found):
    own = found["between_prompts"]
    assert own["sides"] == ["hs plain", "hs noise", "rw plain", "rw noise"]
    assert np.diag(own["matrix"]) == pytest.approx(1)
    assert own["means"]["hs_hs"] == pytest.approx(own["matrix"][0][1], abs=1e-3)


def test_complementarity_and_clusters(found):
    shares = found["complementarity"]["datasets"]["one"]
    assert shares["only_routing"] == shares["both_wrong"] == 0
    assert shares["one_alone"] == shares["only_hidden"] > 0.2
    assert found["clusters"]["texts"] == 2 * PAIRS
    assert found["clusters"]["agreement"].keys() == {"ami", "nmi", "jaccard", "exact_match"}


def test_examples_are_pairs_that_one_part_alone_is_right_about(found):
    """HS is right about all pairs; RW is chance."""
    cases = found["cases"]["one"]
    assert cases["only_rw"] == []
    assert 0 < len(cases["only_hs"]) <= 5
    gaps = []
    for one in cases["only_hs"]:
        ranks = one["ranks"]
        near, far = abs(ranks["hs"] - ranks["score"]), abs(ranks["rw"] - ranks["score"])
        assert near <= found["complementarity"]["failed_above"] < far
        place = DATASETS[0].first.index(one["first"])
        assert one["second"] == DATASETS[0].second[place]
        assert one["score"] == pytest.approx(DATASETS[0].scores[place], abs=1e-4)
        gaps.append(far - near)
    assert gaps == sorted(gaps, reverse=True)


def test_equal_pairs_are_listed_once():
    data = DATASETS[0]
    twice = RatedPairs("twice", data.first * 2, data.second * 2, np.tile(data.scores, 2))
    settings = {"prompts": ["plain"], "clusters": 2, "bootstrap": 0, "cases": 50}
    both = [
        analyse_states(PlantedEmbedder(read), [each], **settings)["cases"][each.name]["only_hs"]
        for each in (data, twice)
    ]
    assert len(both[0]) > 10
    assert {one["first"] for one in both[0]} == {one["first"] for one in both[1]}
    assert len({one["first"] for one in both[1]}) == len(both[1])


def test_vectors_are_those_of_the_embedder():
    """The way of joining and standardizing states decides every figure."""

    def mirrored(states: States, part: str) -> np.ndarray:
        return -states.hidden if part == "hs" else np.abs(states.routing) if part == "rw" else states.hidden

    found = analyse_states(
        PlantedEmbedder(read, mirrored), DATASETS[:1], prompts=["plain"], clusters=2, bootstrap=0
    )
    assert value(found, part="hs")["value"] == pytest.approx(1)
    assert value(found, part="concat")["value"] == pytest.approx(1)
    plain = analyse_states(PlantedEmbedder(read), DATASETS[:1], prompts=["plain"], clusters=2, bootstrap=0)
    assert value(found, part="rw")["value"] != value(plain, part="rw")["value"]


def test_page_shows_every_result(found):
    page = html(report_of(Analysis(found, SETTINGS)))
    for part in ("MoEE (sum)", "AMI", "that each part is right about", "rice", "plain"):
        assert part in page
    assert "planted &amp; &lt;random&gt;" in page
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert html(report_of(Analysis(found, SETTINGS))) == page
    assert json.loads(json.dumps(found)) == found


def test_one_prompt_has_no_spread():
    found = analyse_states(PlantedEmbedder(read), DATASETS[:1], prompts=["plain"], clusters=2, bootstrap=0)
    assert {row["variance"] for row in found["stability"]} == {None}
    assert found["between_prompts"]["means"]["rw_rw"] is None
    assert "nothing to compare" in html(report_of(Analysis(found, SETTINGS)))


@pytest.mark.parametrize(("equal_cosines", "prompts"), [(False, ["plain"]), (True, ["plain", "noise"])])
def test_what_is_not_defined_is_null_in_the_file(
    tmp_path: Path, equal_cosines: bool, prompts: list[str]
) -> None:
    states = States(np.ones((2 * PAIRS, 2), np.float32), np.ones((2 * PAIRS, 2), np.float32))
    embedder = PlantedEmbedder((lambda prompt, texts: states) if equal_cosines else read)
    figures = analyse_states(embedder, DATASETS[:1], prompts=prompts, clusters=2, bootstrap=0)
    before = Analysis(figures, SETTINGS)
    before.save(tmp_path)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    content = json.loads((tmp_path / "analysis.json").read_text(), parse_constant=refuse)
    assert content["correlations"][0]["low"] is None
    read_again = Analysis._read(tmp_path)
    np.testing.assert_equal(read_again.figures, figures)
    assert html(report_of(read_again)) == html(report_of(before))


@pytest.mark.parametrize(
    ("datasets", "prompts", "message"),
    [([], ["a"], "at least one dataset"),
     (DATASETS, ["a", "a"], "each only once"), ([DATASETS[0]] * 2, ["a"], "each only once")],
)  # fmt: skip
def test_invalid_analyses_are_refused(datasets, prompts, message):
    with pytest.raises(UsageError, match=message):
        analyse_states(PlantedEmbedder(read), datasets, prompts=prompts)

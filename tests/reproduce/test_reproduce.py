"""A recipe runs from articles to a table beside the published one, and goes on where it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.shipped_recipes import copy_recipe
from sentence_experts.cli.main import main
from sentence_experts.recipes import RECIPES
from sentence_experts.reproduce.experiment import evaluate
from sentence_experts.storage import locked

pytestmark = pytest.mark.usefixtures("undrawn")
MOE_ALL = RECIPES / "hallee2025" / "moe_all.yaml"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all recipes, as a user has it: the corpus and a paper's pairs are made once."""
    return tmp_path_factory.mktemp("reproduced")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *map(str, arguments)])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def recipe_for(plain_model: Path, folder: Path, recipe: Path = MOE_ALL, **more: str) -> Path:
    """The shipped recipe on the tiny base in MiniLM's place, in two steps, on fewer pairs."""
    small = {
        "small:\n": f"small:\n  base: {plain_model}\n",
        "max_steps: 60": "max_steps: 2",
        "eval_steps: 20": "eval_steps: 1",
        "{max_validation_per_domain: null": "{min_count: 3, max_validation_per_domain: 20",
        "{split: validation": "{bootstrap: 20, split: validation",
    }
    return copy_recipe(recipe, folder, **{**small, **more})


def test_one_process_at_a_time(tmp_path: Path, plain_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = recipe_for(plain_model, tmp_path)
    with locked(tmp_path / "out" / "small", "reproduction"):
        assert run(recipe, "--out", tmp_path / "out") == 1
    assert "in use by process" in capsys.readouterr().err
    assert not (tmp_path / "out" / "small").exists()


def test_files_of_the_reports_names_are_not_replaced(
    tmp_path: Path, plain_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "out" / "small" / "hallee2025" / "moe_all" / "report.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert run(recipe_for(plain_model, tmp_path), "--out", tmp_path / "out") == 2
    assert f"{mine} is there without the results" in capsys.readouterr().err
    assert mine.read_text() == "mine"


def figures(report: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """(table, row, metric) -> the figure in report.json."""
    found = json.loads((report / "report.json").read_text())["figures"]
    return {
        (one["published"]["table"], one["published"]["row"], one["published"]["metric"]): one for one in found
    }


@pytest.mark.slow
def test_recipe_on_pairs_runs_and_resumes(
    tmp_path: Path, plain_model: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_for(plain_model, tmp_path)
    assert run(recipe, "--out", out) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    paper = out / "small" / "hallee2025"
    report = paper / "moe_all"
    measured = json.loads((report / "evaluation" / "evaluation.json").read_text())["models"][0]
    found = figures(report)
    assert len(found) == 6 * 6
    first = found["Table 3", "MoE_all", "f1_max"]
    assert first["value"] == measured["pair_weighted_mean"]["metrics"]["f1_max"]
    assert first["interval"][0] < first["interval"][1]
    for text in (printed, (report / "report.md").read_text(), (report / "report.html").read_text()):
        assert "0.8875" in text
        assert "Table 7: cvd (here neuroscience)" in text
        assert "SIMULATED" in text

    # Again: nothing is made anew.
    records = {file: file.stat().st_mtime_ns for file in paper.rglob("made_from.json")}
    assert len(records) >= 3
    assert run(recipe, "--out", out) == 0
    assert records == {file: file.stat().st_mtime_ns for file in paper.rglob("made_from.json")}
    assert figures(report) == found

    # Nor are edits of the reports undone.
    edited = [report / f"report.{ending}" for ending in ("json", "md", "html")]
    for file in edited:
        file.write_text("mine")
    assert run(recipe, "--out", out) == 0
    assert [file.read_text() for file in edited] == ["mine"] * 3
    assert capsys.readouterr().err.count("stays, though it would be written otherwise now") == 3
    for file in edited:
        file.unlink()
    assert run(recipe, "--out", out) == 0
    assert "stays" not in capsys.readouterr().err
    assert figures(report) == found

    # Another recipe of the paper takes the corpus and the pairs that are there.
    assert run(recipe_for(plain_model, tmp_path, MOE_ALL.with_name("tfidf.yaml")), "--out", out) == 0
    assert (
        records.items() <= {file: file.stat().st_mtime_ns for file in paper.rglob("made_from.json")}.items()
    )

    # A model that was made with other settings is not mixed in.
    capsys.readouterr()
    protocol = recipe.with_name("protocol.yaml")
    protocol.write_text(protocol.read_text().replace("batch_size: 16", "batch_size: 8"))
    assert run(recipe, "--out", out) == 2
    assert "batch_size" in capsys.readouterr().err.splitlines()[-1]


def test_a_report_of_earlier_settings_stays_under_another_name(tmp_path: Path, plain_model: Path) -> None:
    rows = [
        {"anchor": f"rice {n}", "positive": f"{word} {n}", "label": label, "split": "test"}
        for n in range(8)
        for label, word in enumerate(("wheat", "rice"))
    ]
    for number, settings in enumerate(({"bootstrap": 0}, {"bootstrap": 20}, {"bootstrap": 30})):
        evaluate({"m": plain_model}, rows, tmp_path / "out", **settings)
        (tmp_path / "out" / "report.html").write_text(f"mine {number}")
    evaluate({"m": plain_model}, rows, tmp_path / "out", bootstrap=30)
    os.utime(tmp_path / "out" / "report.html", (1, 1))  # as if the results had been written again
    evaluate({"m": plain_model}, rows, tmp_path / "out", bootstrap=30)
    assert (tmp_path / "out" / "report.old3.html").read_text() == "mine 2"
    os.replace(tmp_path / "out" / "report.old3.html", tmp_path / "out" / "report.html")
    assert [(tmp_path / "out" / f"report{name}.html").read_text() for name in (".old1", ".old2", "")] == [
        "mine 0", "mine 1", "mine 2",
    ]  # fmt: skip


@pytest.mark.slow
def test_preprint_recipe_trains_its_router_and_measures_two_sets(
    tmp_path: Path, plain_model: Path, out: Path
) -> None:
    # The rate climbs for some steps of one cycle, so there have to be more.
    warmup = {"max_steps: 60": "max_steps: 3", "warmup_steps: 6": "warmup_steps: 2"}
    recipe = recipe_for(plain_model, tmp_path, RECIPES / "hallee2024" / "mini_moe.yaml", **warmup)
    assert run(recipe, "--out", out) == 0
    paper = out / "small" / "hallee2024"
    config = json.loads((paper / "runs" / "Mini-MoE-seed0" / "run.json").read_text())["config"]
    wanted = ("learned_temperature", "one_cycle", "domain", False)
    assert tuple(config[key] for key in ("loss", "scheduler", "route_by", "mask_known")) == wanted
    model = json.loads((paper / "runs" / "Mini-MoE-seed0" / "model" / "config.json").read_text())
    assert (model["router"], len(model["experts"])) == ("learned", 2)
    test = json.loads((paper / "mini_moe" / "test" / "evaluation.json").read_text())
    (measured,) = test["models"]
    assert measured["pooled"]["positives"] == measured["pooled"]["pairs"] > 0
    assert (test["settings"]["linked_only"], test["settings"]["threshold_min"]) == (True, 0.5)
    assert ("Results (text)", "Mini-MoE", "f1_max") in figures(paper / "mini_moe")

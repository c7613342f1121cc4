"""MoTE's recipes: made of settings that this package has, compared row by row, run to the tables."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.samples import make_tiny_encoder
from sentence_experts.cli import main as command_line
from sentence_experts.corpus.simulate import simulate_corpus
from sentence_experts.recipes import RECIPES
from sentence_experts.reproduce.comparison import Compared, ReproductionResult
from sentence_experts.reproduce.experiment import CALLS, Experiment
from sentence_experts.reproduce.kinds import mteb_type
from sentence_experts.reproduce.published import Published
from sentence_experts.reproduce.recipe import read_recipe
from sentence_experts.reproduce.run import plan_recipe

MOTE = RECIPES / "mote"
PARTS = ("protocol", "published", "tasks", "small_tasks", "simulated_tasks")
SHIPPED = sorted(file for file in MOTE.glob("*.yaml") if file.stem not in PARTS)
APPENDIX_A = ("batching", "temperature")


def planned(file: Path, out: Path, scale: str = "small", seeds: int = 1) -> Experiment:
    return plan_recipe(file, out=out, scale=scale, seeds=seeds)


def test_every_column_of_the_published_tables_and_drawings_has_a_recipe() -> None:
    tables = Published.read(MOTE / "published.yaml").tables
    everything = read_recipe(MOTE / "all.yaml")
    drawings = [run for name in APPENDIX_A for run in read_recipe(MOTE / f"{name}.yaml").runs]
    for runs, rows in ((everything.runs, True), (drawings, False)):
        wanted = {(one.table, column) for one in tables if bool(one.rows) == rows for column in one.columns}
        assert {place for run in runs for place in run.columns.items()} == wanted
    assert {run.name for run in everything.runs} == {file.stem.upper() for file in SHIPPED} - {
        "ALL",
        "MOTE",
        "STATIC",
        *(name.upper() for name in APPENDIX_A),
    } | {"MoTE", "Static"}


@pytest.mark.parametrize("name", APPENDIX_A)
def test_runs_of_appendix_a_differ_in_one_setting(name: str, tmp_path: Path) -> None:
    for scale in ("small", "full"):
        first, second = (
            step.given
            for step in planned(MOTE / f"{name}.yaml", tmp_path / scale, scale).steps
            if step.call == "train"
        )
        differing = {key for key in {*first, *second} if first.get(key) != second.get(key)} - {"model", "out"}
        assert differing == {"batches" if name == "batching" else "temperature"}


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_recipe_runs_what_its_tables_compare(file: Path) -> None:
    recipe = read_recipe(file)
    tables = {table.table: table for table in Published.read(recipe.protocol.published).tables}
    filled = {place for run in recipe.runs for place in run.columns.items()}
    for name in recipe.tables:
        over = tables[name].gains_over
        wanted = {over} if over else set(tables[name].columns)
        assert wanted <= {column for table, column in filled if table == name}


def test_models_of_mote_differ_only_as_in_the_paper() -> None:
    recipe = read_recipe(MOTE / "all.yaml")
    runs = {run.name: run for run in recipe.runs}
    mote = runs["MoTE"]

    def differs(name: str) -> dict[str, Any]:
        """The settings of a run that are not as in MoTE."""
        settings = {**(runs[name].extend or {}), **recipe.train_settings(runs[name], False)}
        base = {**(mote.extend or {}), **recipe.train_settings(mote, False)}
        return {key: settings.get(key) for key in {**settings, **base} if base.get(key) != settings.get(key)}

    assert differs("Static") == {"curriculum": "static"}
    assert differs("EOB") == {"layers": "alternate"}
    assert differs("TLR") == {"router": "token", "top_k": 2, "balance_loss": 0.01}
    assert differs("IC") == {"layers": "none", "router": None, "expert_norms": None}
    assert (runs["EM"].extend, runs["EM"].train) == (None, {"instructions": False})
    assert (runs["SEM"].per_route, runs["EA"].average_of) == (True, "EOB")


def made_up(experiment: Experiment) -> tuple[dict[str, Any], ReproductionResult]:
    """Figures of two retrieval datasets, one of classification, one of STS, all different; the comparison."""
    generator = random.Random(0)
    kinds = {"Retrieval": 2, "Classification": 1, "STS": 1}
    models = [
        {
            "label": model.label,
            "types": {kind: {"value": generator.random(), "interval": [0.25, 0.75]} for kind in kinds},
        }
        for model in experiment.models
    ]
    tasks = [{"kind": kind} for kind, count in kinds.items() for _ in range(count)]
    ours = {
        model["label"]: {kind: 100 * one["value"] for kind, one in model["types"].items()} for model in models
    }
    return ours, experiment.compare({"evaluation": {"tasks": tasks, "models": models}})


def figure(comparison: ReproductionResult, table: str, column: str, task: str) -> Compared:
    (found,) = [
        one
        for one in comparison.figures
        if (one.published.table, one.published.column, one.published.row) == (table, column, task)
    ]
    return found


def test_gains_averages_and_single_task_models(tmp_path: Path) -> None:
    ours, comparison = made_up(planned(MOTE / "sem.yaml", tmp_path))
    # A single-task model stands in the row of its task, and in those that are read as it.
    single = {"retrieval": "SEM retrieval", "classification": "SEM classification"}
    for task, label in single.items():
        found = figure(comparison, "Table 2", "SEM", task)
        assert found.value == ours[label][mteb_type(task)]
        assert found.gain == pytest.approx(ours[label][mteb_type(task)] - ours["EM"][mteb_type(task)])
    assert figure(comparison, "Table 3", "SEM", "sts").value == ours["SEM classification"]["STS"]
    # An average is over the datasets of its table's rows that were measured.
    em = figure(comparison, "Table 2", "EM", "average")
    assert em.value == pytest.approx((2 * ours["EM"]["Retrieval"] + ours["EM"]["Classification"]) / 3)
    assert em.gain is None
    mean = figure(comparison, "Table 2", "SEM", "average").value
    parts = (2 * ours["SEM retrieval"]["Retrieval"], ours["SEM classification"]["Classification"])
    assert mean == pytest.approx(sum(parts) / 3)
    assert figure(comparison, "Table 3", "EM", "average").value == pytest.approx(ours["EM"]["STS"])
    assert figure(comparison, "Table 2", "EM", "clustering").value is None
    # The others' columns are there, and say that they were not run.
    assert figure(comparison, "Table 2", "MoTE", "retrieval").differs == ("not run",)
    assert figure(comparison, "Table 2", "EM", "retrieval").differs == ("data", "base", "scale")
    assert figure(comparison, "Table 2", "EM", "retrieval").interval == (25, 75)
    for text in (
        "minilm for nomic-ai/nomic-bert-2048",
        "learning_rate 5e-05 for 5e-06",
        "retrieval 2 for 15",
    ):
        assert text in "\n".join(comparison.differences)
    rows = {line[0]: line for line in comparison.tables[0].rows}
    assert comparison.tables[0].headings == ("", "EM", "SEM", "IC", "MoTE")
    em, sem = (figure(comparison, "Table 2", column, "retrieval") for column in ("EM", "SEM"))
    assert rows["retrieval"][1:3] == (f"{em.value:.2f}\n25.00-75.00", f"{sem.gain:+.2f}")
    assert comparison.tables[0].rows[1] == ("  published", "42.31", "-8.86", "+3.27", "+5.21")
    assert rows["retrieval"][3] == "–"


def reproduce(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stop:
        command_line.main(["reproduce", *map(str, arguments)])
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.mark.slow
def test_recipe_on_tasks_runs_and_resumes(
    tmp_path: Path, minilm: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CALLS, "simulate_corpus", lambda out: simulate_corpus(out, articles=240))
    folder = shutil.copytree(MOTE, tmp_path / "mote")
    protocol = yaml.safe_load((folder / "protocol.yaml").read_text())
    protocol["small"]["base"] = str(make_tiny_encoder(tmp_path / "tiny", minilm))
    protocol["small"]["train"] |= {"max_steps": 2, "eval_steps": 2, "batch_size": 8, "learning_rate": 1e-3}
    protocol["small"]["compile"] |= {"max_train": 60, "max_eval": 30}
    (folder / "protocol.yaml").write_text(yaml.safe_dump(protocol, sort_keys=False))
    ea = yaml.safe_load((folder / "ea.yaml").read_text())
    eob = yaml.safe_load((folder / "eob.yaml").read_text())
    recipe = folder / "few.yaml"
    few = {**ea, "beside": [], "runs": [*eob["runs"], *ea["runs"]]}
    recipe.write_text(yaml.safe_dump(few, sort_keys=False))

    assert reproduce(recipe, "--out", "out") == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    report = Path("out/small/mote/few")
    figures = json.loads((report / "report.json").read_text())["figures"]
    found = {(one["published"]["column"], one["published"]["row"]): one["value"] for one in figures}
    measured = json.loads((report / "evaluation" / "tasks.json").read_text())["models"]
    assert [model["label"] for model in measured] == ["EOB", "EA"]
    for column, model in zip(("MoTE", "EA"), measured, strict=True):
        assert found[column, "average"] == pytest.approx(100 * model["average"]["value"])
        assert found[column, "clustering"] == pytest.approx(100 * model["types"]["Clustering"]["value"])
    assert found["IEM", "retrieval"] is None
    for text in (printed, (report / "report.md").read_text(), (report / "report.html").read_text()):
        assert "Table 7" in text
        assert "58.60" in text
        assert "SIMULATED" in text

    assert reproduce(recipe, "--out", "out") == 0
    again = capsys.readouterr()
    assert len(re.findall("is finished already", again.err)) == 6

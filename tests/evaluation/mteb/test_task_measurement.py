"""From names to files: what is kept is used again, and not where it no longer holds."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from helpers.task_samples import make_task_model, make_tasks_folder
from sentence_experts.errors import RouteError, UsageError
from sentence_experts.evaluation.evaluate import evaluate
from sentence_experts.report.write import write_report
from sentence_experts.storage import sha256_file

ONLY = ("sts", "same")


def measured(model: Path | str, data, out: Path, **settings):
    defaults = {"only": list(ONLY), "device": "cpu", "overwrite": True}
    found = evaluate(model, data, out=out, **defaults | settings)
    write_report(found, out)
    return found


def kept_results(out: Path) -> dict[str, float]:
    files = (out / "mteb").rglob("*.*.json")
    return {f"{file.parent.name}/{file.name}": file.stat().st_mtime_ns for file in files}


def written(out: Path) -> bytes:
    return (out / "tasks.json").read_bytes() + (out / "tasks.md").read_bytes()


def test_finished_tasks_are_not_measured_again(task_model, tasks_folder, tmp_path, capsys):
    measured(task_model, tasks_folder, tmp_path, only=("sts",))
    first = kept_results(tmp_path)
    assert len(first) == 1
    found = measured(task_model, tasks_folder, tmp_path)
    assert len(kept_results(tmp_path)) == 2
    assert first.items() <= kept_results(tmp_path).items()
    assert "1 of 2 tasks were already measured" in capsys.readouterr().err
    before = written(tmp_path)
    assert measured(task_model, tasks_folder, tmp_path).models == found.models
    assert written(tmp_path) == before
    assert str(tmp_path) not in before.decode()
    shutil.rmtree(tmp_path / "mteb")
    measured(task_model, tasks_folder, tmp_path)
    assert written(tmp_path) == before


@pytest.mark.slow
def test_changed_model_routes_or_data_are_measured_again(
    task_model, plain_model, tasks_folder, tmp_path, capsys
):
    model = tmp_path.with_name(f"{tmp_path.name}-model")
    shutil.copytree(task_model, model)
    first = measured(model, tasks_folder, tmp_path)
    shutil.rmtree(model)
    make_task_model(model, plain_model, seed=7)
    other = measured(model, tasks_folder, tmp_path)
    assert other.models[0].average != first.models[0].average
    mapped = measured(model, tasks_folder, tmp_path, route_map={"STS": "query"})
    assert mapped.models[0].tasks["sts.papers"] != other.models[0].tasks["sts.papers"]
    assert len(kept_results(tmp_path)) == 6
    measured(model, tasks_folder, tmp_path, max_length=8)
    assert len(kept_results(tmp_path)) == 8
    make_tasks_folder(tmp_path)  # equal rows: nothing is measured
    capsys.readouterr()
    measured(model, tmp_path / "tasks", tmp_path)
    assert "2 of 2 tasks were already measured" in capsys.readouterr().err
    (tmp_path / "sts.jsonl").write_text("".join(sorted((tmp_path / "sts.jsonl").open())[:20]))
    from sentence_experts.tasks.compile import compile_tasks

    compile_tasks(tmp_path / "tasks.yaml", out=tmp_path / "tasks", overwrite=True)
    measured(model, tmp_path / "tasks", tmp_path)
    assert "1 of 2 tasks were already measured" in capsys.readouterr().err


def test_damaged_result_is_measured_again(task_model, tasks_folder, tmp_path, capsys):
    first = measured(task_model, tasks_folder, tmp_path, only=("sts",))
    (file,) = (tmp_path / "mteb").rglob("sts.papers.json")
    whole = file.read_text()
    for damaged in (whole[:40], re.sub(r'("main_score": -?0\.)\d', r"\g<1>9", whole)):
        assert damaged != whole
        file.write_text(damaged)
        assert measured(task_model, tasks_folder, tmp_path, only=("sts",)).models == first.models
        assert "not readable, sts.papers is measured again" in capsys.readouterr().err


def test_a_result_of_another_model_is_measured_again(task_model, tasks_folder, tmp_path, capsys, plain_model):
    first = measured(task_model, tasks_folder, tmp_path, only=("sts",))
    (file,) = (tmp_path / "mteb").rglob("sts.papers.json")
    record = file.with_name(f"{file.name}.sha256")
    record.write_text(sha256_file(file))  # as earlier versions wrote it
    assert measured(task_model, tasks_folder, tmp_path, only=("sts",)).models == first.models
    assert "1 of 1 tasks were already measured" in capsys.readouterr().err
    make_task_model(tmp_path / "other", plain_model, seed=7)
    measured(tmp_path / "other", tasks_folder, tmp_path, only=("sts",))
    (other,) = {*(tmp_path / "mteb").rglob("sts.papers.json")} - {file}
    for each in (other, other.with_name(f"{other.name}.sha256")):
        shutil.copy(each, file.with_name(each.name))
    assert measured(task_model, tasks_folder, tmp_path, only=("sts",)).models == first.models


def test_task_without_data_is_left_out(task_model, tmp_path, capsys):
    names = ("SciFact", "STSBenchmark")  # no hub here: HF_HUB_OFFLINE is set
    found = measured(task_model, names, tmp_path, only=())
    assert set(found.missing) == set(names)
    assert found.models == ()
    said = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert [line.split(":")[0] for line in said] == list(names)
    assert json.loads((tmp_path / "tasks.json").read_text())["missing"].keys() == set(names)


def test_seeds_are_joined_and_models_compared(task_model, plain_model, tasks_folder, tmp_path):
    second = make_task_model(tmp_path / "second", plain_model, seed=1)
    models = {"EM": plain_model, "MoTE": [task_model, second]}
    found = measured(models, tasks_folder, tmp_path / "out")
    em, mote = found.models
    assert (em.label, len(em.runs), mote.label, len(mote.runs)) == ("EM", 1, "MoTE", 2)
    figures = [run.scores["sts.papers"] for run in mote.runs]
    assert mote.tasks["sts.papers"].value == pytest.approx(sum(figures) / 2)
    assert em.runs[0].settings["route_of_task"]["sts.papers"] == {"text": None}
    assert mote.runs[0].settings["route_of_task"]["sts.papers"] == {"text": "classification"}
    assert [(gap.first, gap.second) for gap in found.differences] == [("EM", "MoTE")]


def test_wrong_usage_errors_before_measuring(experts_model, task_model, tasks_folder, tmp_path):
    with pytest.raises(
        RouteError, match=r"sts\.papers \(STS\).*its routes: crops, neuro.*`route_map` STS=ROUTE"
    ):
        measured(experts_model, tasks_folder, tmp_path, only=("sts",))
    with pytest.raises(UsageError, match="nothing to evaluate"):
        measured([], tasks_folder, tmp_path)
    with pytest.raises(UsageError, match="two models are called"):
        measured([task_model, task_model], tasks_folder, tmp_path)
    with pytest.raises(UsageError, match="neither a task type nor a task"):
        measured(task_model, tasks_folder, tmp_path, route_map={"sky": "query"})
    with pytest.raises(UsageError, match=r"`route_map` x=\.\.\.: no such model"):
        measured(task_model, tasks_folder, tmp_path, route_map={"x:STS": "query"})
    assert not kept_results(tmp_path)
    found = measured(experts_model, tasks_folder, tmp_path, route_map={"*": "neuro"})
    assert found.models[0].runs[0].settings["route_of_task"]["sts.papers"] == {"text": "neuro"}

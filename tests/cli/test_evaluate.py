from __future__ import annotations

import json

import pytest

from helpers.command_line import run

pytestmark = pytest.mark.usefixtures("undrawn")


def test_evaluate_models_and_tfidf_on_pairs(pairs_folder, experts_model, plain_model, tmp_path, capsys):
    out_folder = tmp_path / "out"
    arguments = [
        "evaluate",
        experts_model,
        "--pairs",
        pairs_folder,
        "--baseline",
        "tfidf",
        "--baseline",
        plain_model,
        "--name",
        f"base={plain_model}",
        "--bootstrap",
        "20",
        "--device",
        "cpu",
        "--out",
    ]
    status, out, _ = run(capsys, *arguments, out_folder)
    assert status == 0
    assert out.splitlines()[-1].endswith("report.html")
    assert "All pairs together" in out
    written = json.loads((out_folder / "evaluation.json").read_text())
    assert [model["label"] for model in written["models"]] == ["experts", "TF-IDF", "base"]
    assert written["models"][0]["settings"]["route_of_domain"] == {"crops": "crops", "neuro": "neuro"}
    assert written["settings"]["replicates"] == 20
    text = (out_folder / "evaluation.json").read_text() + (out_folder / "report.html").read_text()
    assert str(tmp_path) not in text
    assert str(experts_model.parent) not in text
    again = tmp_path / "again"
    run(capsys, *arguments, again)
    for name in ("evaluation.json", "report.html", "scores.parquet"):
        assert (again / name).read_bytes() == (out_folder / name).read_bytes()


def test_seeds_pooling_and_route_map(pairs_folder, experts_model, plain_model, tmp_path, capsys):
    arguments = ["evaluate", "--pairs", pairs_folder, "--bootstrap", "20", "--device", "cpu"]
    arguments += ["--cache", tmp_path / "vectors", "--out", tmp_path / "out"]
    arguments += ["--seeds", f"twice={plain_model}", "--seeds", f"twice={plain_model}", plain_model]
    arguments += ["--name", f"mean={plain_model}", "--name", f"last={plain_model}", "--pooling", "last=last"]
    arguments += ["--baseline", experts_model, "--route-map", "experts:*=neuro"]
    status, out, err = run(capsys, *arguments)
    assert status == 0, err
    assert "one training run of mean and last: another seed" in out
    written = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    models = {model["label"]: model for model in written["models"]}
    assert list(models) == ["mean", "last", "twice", "experts"]
    assert models["twice"]["pooled"]["spread"]["f1_max"] == 0
    assert models["twice"]["pooled"]["metrics"] == pytest.approx(models["mean"]["pooled"]["metrics"])
    assert models["last"]["pooled"]["metrics"] != models["mean"]["pooled"]["metrics"]
    assert models["last"]["settings"]["pooling"] == "last"
    assert models["experts"]["settings"]["route_of_domain"] == {"crops": "neuro", "neuro": "neuro"}
    assert written["settings"]["same_model"] == {"twice": "mean"}
    assert len(written["differences"]) == 3 * 4 * 2
    # Equal runs share their vectors, in a folder that is chosen.
    assert len(list((tmp_path / "vectors").iterdir())) == 3
    assert not (tmp_path / "out" / "vectors").exists()

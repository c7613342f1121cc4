from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.samples import TOPICS, make_pairs_folder, make_tiny_encoder
from sentence_experts.cli.main import main

pytestmark = pytest.mark.usefixtures("undrawn")
METRICS = {"f1_max", "precision", "recall", "threshold", "ratio", "roc_auc", "mean_distance", "accuracy"}


@pytest.fixture(scope="module")
def pairs_folder(tmp_path_factory) -> Path:
    return make_pairs_folder(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def plain_model(tmp_path_factory, minilm) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "plain", minilm)


@pytest.fixture(scope="module")
def experts_model(tmp_path_factory, minilm) -> Path:
    return make_tiny_encoder(tmp_path_factory.mktemp("models") / "experts", minilm, tuple(TOPICS))


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


def write_scores(folder, text: str):
    file = folder / "scores.csv"
    file.write_text(text)
    return file


def test_scores_prints_the_metrics_as_json(tmp_path, capsys):
    file = write_scores(tmp_path, "label,prediction,note\n1,0.9,a\n0,0.25,b\n1,0.5,c\n0,0.6,d\n")
    status, out, _ = run(capsys, "evaluate", "scores", file)
    found = json.loads(out)
    assert status == 0
    assert set(found) == METRICS
    assert found["f1_max"] == pytest.approx(0.8)
    assert found["threshold"] == 0.5


def test_scores_are_read_from_any_kind_of_table(tmp_path, capsys):
    table = pa.table({"label": [1, 0, 1, 0], "prediction": [0.9, 0.25, 0.5, 0.6]})
    pq.write_table(table, tmp_path / "scores.parquet")
    lines = [json.dumps(row) + "\n" for row in table.to_pylist()]
    (tmp_path / "scores.jsonl").write_text("".join(lines))
    rows = [f"{row['label']}\t{row['prediction']}\n" for row in table.to_pylist()]
    (tmp_path / "scores.tsv").write_text("label\tprediction\n" + "".join(rows))
    for kind in ("parquet", "jsonl", "tsv"):
        status, out, _ = run(capsys, "evaluate", "scores", tmp_path / f"scores.{kind}")
        assert (status, json.loads(out)["f1_max"]) == (0, pytest.approx(0.8))
    _, help_, _ = run(capsys, "evaluate", "scores", "--help")
    assert ".parquet" in help_


def test_scores_of_linked_pairs_need_threshold_min(tmp_path, capsys):
    file = write_scores(tmp_path, "prediction,label\n0.9,1\n0.6,1\n0.2,1\n")
    status, out, err = run(capsys, "evaluate", "scores", file)
    assert (status, json.loads(out)["f1_max"]) == (0, 1.0)
    assert "--threshold-min 0.5" in err
    status, out, err = run(capsys, "evaluate", "scores", file, "--threshold-min", "0.5")
    assert (json.loads(out)["threshold"], json.loads(out)["roc_auc"]) == (0.6, None)
    assert json.loads(out)["accuracy"] == pytest.approx(2 / 3)
    assert err == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("score,label\n0.1,1\n", "lacks the column prediction; it has: score, label"),
        ("prediction,label\n0.1,2\n", "label 2 is not 0 or 1"),
        ("prediction,label\n,1\n", "row 1 has no prediction"),
        ("prediction,label\nmuch,1\n", "much"),
        ("prediction,label\n", "no pairs"),
        ("", "lacks the columns prediction, label"),
        (None, "no such file"),
    ],
)
def test_bad_scores_file(tmp_path, capsys, content, message):
    file = tmp_path / "scores.csv" if content is None else write_scores(tmp_path, content)
    status, out, err = run(capsys, "evaluate", "scores", file)
    assert (status, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_of_both_commands(capsys):
    status, out, _ = run(capsys, "evaluate", "--help")
    assert status == 0
    assert "--baseline" in out
    assert "evaluate scores" in out
    assert " models " not in out.splitlines()[1]
    _, out, _ = run(capsys, "evaluate", "scores", "--help")
    assert "--threshold-min" in out
    assert "f1_max" in out


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


def test_usage_errors(pairs_folder, experts_model, tmp_path, capsys):
    base = ["evaluate", "--pairs", pairs_folder, "--out", tmp_path / "out"]
    for arguments, status, message in (
        ([], 2, "nothing to evaluate"),
        (["--baseline", "tfidf", "--name", "x"], 2, "--name: 'x' is not of the form LABEL=MODEL"),
        (["--baseline", "tfidf", "--name", "x=elsewhere"], 2, "no such model or baseline"),
        (["--baseline", "tfidf", "--tfidf-fit", "all"], 2, "--tfidf-fit: Input should be 'train' or"),
        (["--baseline", "tfidf", "--baseline", "tfidf"], 2, "two models are called 'TF-IDF'"),
        (["--baseline", "tfidf", "--route-map", "sky=x"], 2, "the domains are crops, neuro"),
        (["--baseline", "tfidf", "--split", "dev"], 2, "--split: Input should be 'train',"),
        (["./nowhere"], 1, "no such model folder"),
        ([experts_model, "--route-map", "crops=maize"], 2, "no model has that route; routes: crops, neuro"),
        ([experts_model, "--route-map", "x:crops=crops"], 2, "no such model; models: experts"),
        ([experts_model, "--pooling", "experts=max"], 2, "--pooling: Input should be 'mean',"),
        (["--baseline", "tfidf", "--pooling", "tfidf=last"], 2, "--pooling tfidf=last: no such model"),
    ):
        found, out, err = run(capsys, *base, *arguments)
        assert (found, out) == (status, ""), err
        assert message in err
    assert not (tmp_path / "out" / "evaluation.json").exists()
    found, _, err = run(capsys, "evaluate", "./scores", "--pairs", pairs_folder, "--out", tmp_path / "out")
    assert (found, "./scores: no such model folder" in err) == (1, True)
    found, _, err = run(capsys, "evaluate", "x", "--pairs", tmp_path, "--out", tmp_path / "out")
    assert (found, str(tmp_path) in err) == (1, True)


def test_seeds_pooling_and_route_map(pairs_folder, experts_model, plain_model, tmp_path, capsys):
    arguments = ["evaluate", "--pairs", pairs_folder, "--bootstrap", "20", "--device", "cpu"]
    arguments += ["--cache", tmp_path / "vectors", "--out", tmp_path / "out"]
    arguments += ["--seeds", f"twice={plain_model}", "--seeds", f"twice={plain_model}", plain_model]
    arguments += ["--name", f"mean={plain_model}", "--name", f"last={plain_model}", "--pooling", "last=last"]
    arguments += ["--baseline", experts_model, "--route-map", "experts:*=neuro"]
    status, out, err = run(capsys, *arguments)
    assert status == 0, err
    assert "experts: route neuro for every domain" in err
    assert "Fewer than 3 seeds: mean, last, twice." in out
    written = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    models = {model["label"]: model for model in written["models"]}
    assert list(models) == ["mean", "last", "twice", "experts"]
    assert models["twice"]["pooled"]["spread"]["f1_max"] == 0
    assert models["twice"]["pooled"]["metrics"] == pytest.approx(models["mean"]["pooled"]["metrics"])
    assert models["last"]["pooled"]["metrics"] != models["mean"]["pooled"]["metrics"]
    assert models["last"]["settings"]["pooling"] == "last"
    assert models["experts"]["settings"]["route_of_domain"] == {"crops": "neuro", "neuro": "neuro"}
    assert len(written["differences"]) == 6 * 4 * 2
    # Equal runs share their vectors, in a folder of one's own choice.
    assert len(list((tmp_path / "vectors").iterdir())) == 3
    assert not (tmp_path / "out" / "vectors").exists()

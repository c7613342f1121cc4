"""From MeSH queries to a trained and evaluated model, every verb as a user gives it, on real articles."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from helpers.replay_server import Replay, serving
from helpers.served_articles import serve_articles
from sentence_experts.cli.main import main

pytestmark = pytest.mark.realdata


def run(*arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code == 0


@pytest.mark.timeout(400)
def test_from_a_query_to_an_evaluated_model(
    real_data: Path, minilm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, plan = Replay(), tmp_path / "plan.yaml"
    queries = {"rice": '"Oryza"[MeSH]', "wheat": '"Triticum"[MeSH]'}
    words = {query: name for name, query in queries.items()}
    serve_articles(world, real_data / "corpora" / "pmc_crops_jats.tar.xz", words, most=100)
    with serving(world) as base:
        plan.write_text(yaml.safe_dump({"domains": queries, "services": world.services(base)}))
        fetch = ("corpus", "fetch", "--config", plan, "--email", "a@b.org", "--workers", 1)
        run(*fetch, "--out", tmp_path / "c")
    assert "with an abstract" in capsys.readouterr().out
    # Each paper is in the domains whose queries found it: no rules are needed.
    run(
        "pairs", "compile", tmp_path / "c", "--relation", "coupling",
        "--out", tmp_path / "pairs",
    )  # fmt: skip
    train = pq.read_table(tmp_path / "pairs" / "train.parquet")
    assert set(train["domain"].to_pylist()) == set(queries)
    run("extend", minilm, "--experts", "rice,wheat", "--out", tmp_path / "untrained")
    run(
        "train", tmp_path / "untrained", "--pairs", tmp_path / "pairs", "--out", tmp_path / "run",
        "--max-steps", 2, "--batch-size", 4, "--max-length", 32, "--eval-steps", 2,
    )  # fmt: skip
    run(
        "evaluate", tmp_path / "run" / "model", "--pairs", tmp_path / "pairs", "--max-length", 32,
        "--bootstrap", 20, "--out", tmp_path / "results",
    )  # fmt: skip
    results = json.loads((tmp_path / "results" / "evaluation.json").read_text())
    assert "f1_max" in json.dumps(results)

"""Real models on real local tasks, against scipy on the vectors themselves."""

from __future__ import annotations

import gzip
import json

import pytest
from scipy.stats import spearmanr

from sentence_experts.encoding.encoder import BatchEncoder, cosines
from sentence_experts.evaluation.evaluate import evaluate
from sentence_experts.models.loading import load
from sentence_experts.tasks.compile import compile_tasks
from sentence_experts.tasks.config import TasksConfig
from sentence_experts.tasks.dataset import Tasks

TASKS = """
tasks:
  classification:
    kind: classification
    datasets: {{banking77: {{files: {{train: {banking}_train.jsonl.gz, test: {banking}_test.jsonl.gz}}}}}}
  sts:
    kind: sts
    datasets: {{stsb: {{files: {{test: stsb.jsonl}}, anchor: sentence1, positive: sentence2}}}}
"""


@pytest.mark.slow
@pytest.mark.realdata
def test_minilm_on_sts_benchmark_and_banking77(real_data, minilm, tmp_path):
    with gzip.open(real_data / "eval" / "stsb_dev.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file][::10]  # the file is ordered by genre
    (tmp_path / "stsb.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tasks.yaml").write_text(TASKS.format(banking=real_data / "eval" / "banking77"))
    settings = TasksConfig(max_train=400, max_eval=150)
    compile_tasks(tmp_path / "tasks.yaml", settings, tmp_path / "tasks")
    found = evaluate("minilm", tmp_path / "tasks", device="cpu")
    figures = {name: figure.value for name, figure in found.models[0].tasks.items()}

    table = Tasks.open(tmp_path / "tasks").pairs("sts", "stsb", "test")
    assert table.num_rows == 150
    encoder = BatchEncoder(load("minilm", device="cpu"))
    near = cosines(*(encoder.encode(table[side].to_pylist()) for side in ("anchor", "positive")))
    assert figures["sts.stsb"] == pytest.approx(spearmanr(near, table["score"]).statistic, abs=1e-5)
    assert 0.8 < figures["sts.stsb"] < 0.95
    assert 0.4 < figures["classification.banking77"] < 0.95  # some 5 texts a label to learn 77 from

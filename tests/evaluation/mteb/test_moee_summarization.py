"""Summaries judged by mteb's own task, with the similarity of routing weights and hidden states."""

from __future__ import annotations

from pathlib import Path

import mteb
import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTaskSummarization
from mteb.abstasks.task_metadata import TaskMetadata
from scipy.stats import spearmanr

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.evaluation.mteb.adapter import TaskEncoder
from sentence_experts.moee.embedder import MoeEmbedder

MODEL = Path(__file__).parents[2] / "moee" / "tiny-olmoe"
ROWS = {
    "text": ["Neurons of the cortex fire in sleep.", "The virus spreads from cell to cell."],
    "human_summaries": [
        ["Cells of the cortex are active in sleep.", "Sleep and neurons."],
        ["A virus moves between cells.", "How viruses spread."],
    ],
    "machine_summaries": [
        ["Neurons are active in sleep.", "A man plays a guitar.", "Sleep is studied.", "The gene is old."],
        ["The virus spreads.", "Two dogs run.", "Cells of the host.", "Proteins bind to DNA in cells."],
    ],
    "relevance": [[5.0, 1.0, 3.0, 2.0], [5.0, 1.0, 3.0, 2.0]],
}


class Summaries(AbsTaskSummarization):
    min_score, max_score = 1, 5
    metadata = TaskMetadata(
        name="summaries",
        description="four summaries for each of two texts",
        dataset={"path": "local/summaries", "revision": "1"},
        type="Summarization",
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="spearman",
    )

    def load_data(self, num_proc=None, **kwargs) -> None:
        self.dataset = DatasetDict({"test": Dataset.from_dict(ROWS)})
        self.data_loaded = True


@pytest.mark.parametrize("part", ["sum", "rw"])
def test_summary_score_is_that_of_the_nearest_human_summary(part):
    embedder = MoeEmbedder(str(MODEL), parts=part, prompt="none", device="cpu")
    model = TaskEncoder(BatchEncoder(embedder, batch_size=32))
    found = mteb.evaluate(model, Summaries(), cache=None, co2_tracker=False, show_progress_bar=False)
    expected = []
    for human, machine, gold in zip(
        ROWS["human_summaries"], ROWS["machine_summaries"], ROWS["relevance"], strict=True
    ):
        nearest = embedder.similarity(embedder.encode(machine), embedder.encode(human)).numpy().max(axis=1)
        expected.append(spearmanr(nearest, gold).statistic)
    score = found.task_results[0].scores["test"][0]["spearman"]
    assert score == pytest.approx(np.mean(expected), abs=1e-6)

from __future__ import annotations

import pytest
from sentence_transformers import SentenceTransformer

from sentence_experts.errors import RouteError
from sentence_experts.evaluation.evaluator import PairEvaluator
from sentence_experts.evaluation.metrics import pair_metrics
from sentence_experts.pairs.dataset import PairsFolder


def test_keys_and_values_are_those_the_trainer_needs(pairs_folder, experts_model):
    table = PairsFolder.open(pairs_folder).split("validation")
    model = SentenceTransformer(str(experts_model), device="cpu")
    evaluator = PairEvaluator(table)
    found = evaluator(model)
    assert evaluator.primary_metric == "validation_f1_max"
    scores = []
    for pair in table.to_pylist():
        a, b = model.encode([pair["anchor"], pair["positive"]], prompt_name=pair["domain"])
        scores.append(float(model.similarity(a, b)))
    expected = pair_metrics(scores, table["label"].to_pylist())
    assert found["validation_f1_max"] == pytest.approx(expected["f1_max"])
    assert found["validation_threshold"] == pytest.approx(expected["threshold"], abs=1e-5)
    assert {"validation_crops_f1_max", "validation_neuro_roc_auc"} < set(found)
    assert all(isinstance(value, float) for value in found.values())


def test_a_model_without_a_domains_route_is_an_error(pairs_folder, experts_model):
    table = PairsFolder.open(pairs_folder).split("validation")
    model = SentenceTransformer(str(experts_model), device="cpu")
    table = table.set_column(table.column_names.index("domain"), "domain", [["astronomy"] * table.num_rows])
    with pytest.raises(RouteError, match="astronomy"):
        PairEvaluator(table)(model)

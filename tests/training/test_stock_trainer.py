"""The validator works in a stock sentence-transformers trainer."""

from __future__ import annotations

import pytest
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import MultipleNegativesRankingLoss
from transformers import EarlyStoppingCallback

from sentence_experts.errors import RouteError
from sentence_experts.evaluation.metrics import pair_metrics
from sentence_experts.training.validation import PairValidation, Validator


def test_keys_and_values_are_those_the_trainer_needs(pairs, experts_model):
    table = pairs.split("validation")
    model = SentenceTransformer(str(experts_model), device="cpu")
    evaluator = Validator([PairValidation(table)])
    found = evaluator(model)
    assert evaluator.primary_metric == "validation_mean"
    scores = []
    for pair in table.to_pylist():
        a, b = model.encode([pair["anchor"], pair["positive"]], prompt_name=pair["domain"])
        scores.append(float(model.similarity(a, b)))
    expected = pair_metrics(scores, table["label"].to_pylist())
    assert found["validation_f1_max"] == pytest.approx(expected["f1_max"])
    assert found["validation_threshold"] == pytest.approx(expected["threshold"], abs=1e-5)
    assert {"validation_crops/f1_max", "validation_neuro/roc_auc"} < set(found)
    assert all(isinstance(value, float) for value in found.values())


def test_a_model_without_a_domains_route_is_an_error(pairs, experts_model):
    table = pairs.split("validation")
    model = SentenceTransformer(str(experts_model), device="cpu")
    table = table.set_column(table.column_names.index("domain"), "domain", [["astronomy"] * table.num_rows])
    with pytest.raises(RouteError, match="astronomy"):
        Validator([PairValidation(table)])(model)


def test_the_trainer_chooses_its_best_model_and_stops_by_it(pairs, experts_model, tmp_path):
    model = SentenceTransformer(str(experts_model), device="cpu")
    routed = [
        {side: model.prompts[pair["domain"]] + pair[side] for side in ("anchor", "positive")}
        for pair in pairs.split("train").to_pylist()
    ]
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"),
        max_steps=4,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_validation_mean",
        report_to=[],
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(
        model,
        arguments,
        train_dataset=Dataset.from_list(routed),
        loss=MultipleNegativesRankingLoss(model),
        evaluator=Validator([PairValidation(pairs.split("validation"))]),
        callbacks=[EarlyStoppingCallback(1)],
    )
    trainer.train()
    seen = [log["eval_validation_mean"] for log in trainer.state.log_history if "eval_validation_mean" in log]
    assert len(seen) == 2
    assert trainer.state.best_metric == max(seen)

"""The evaluation that sentence-transformers' trainer calls while it trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from sentence_experts.encoding.encoder import BatchEncoder
from sentence_experts.evaluation.measure import measure
from sentence_experts.evaluation.pairs import checked_table, domains_of, score_pairs
from sentence_experts.evaluation.results import POOLED, PairMetrics
from sentence_experts.evaluation.router_accuracy import TEXTS_WHILE_TRAINING, RouterAccuracy, router_accuracy
from sentence_experts.evaluation.scorers import EncoderScorer

# The 2025 paper stops training on F1max over the evaluation set ("Training strategy").
PRIMARY_METRIC = "f1_max"
REPORTED = (
    "f1_max",
    "roc_auc",
    "precision",
    "recall",
    "threshold",
    "ratio",
    "mean_distance",
    "accuracy",
    "mean_positive",
    "mean_negative",
)


class PairEvaluator(SentenceEvaluator):
    """Metrics of a model on labelled pairs, pooled over domains and by domain.

    Keys are `{name}_{metric}` for all pairs together and `{name}_{domain}_{metric}` for a domain; undefined
    metrics are left out. A model with learned routers has `{name}_router_accuracy` too, the mean over its
    blocks, and `{name}_router_accuracy_block_{number}`. With `name="validation"` the trainer's
    `metric_for_best_model` is `"eval_validation_f1_max"`.

    Args:
        table: the pairs, columns as in `pairs.PAIR_COLUMNS`.
        name: the keys' prefix.
        route_map: domain -> route, where the model's routes are not called like the domains.
        batch_size: texts encoded at once.
        threshold_min: lowest candidate threshold (`metrics.pair_metrics`).

    Raises:
        InputError: the table lacks a column or holds bad values.
        RouteError: when called, if the model has experts but lacks a route for a domain.
    """

    def __init__(
        self,
        table: pa.Table,
        name: str = "validation",
        route_map: dict[str, str] | None = None,
        batch_size: int = 32,
        threshold_min: float | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.table = checked_table(table, f"the {name} pairs")
        self.route_map = route_map or {}
        self.batch_size = batch_size
        self.threshold_min = threshold_min
        self.greater_is_better = True
        self.primary_metric = f"{name}_{PRIMARY_METRIC}" if name else PRIMARY_METRIC

    def __call__(  # type: ignore[override]  # of all base models, only a SentenceTransformer gives vectors
        self,
        model: SentenceTransformer,
        output_path: str | Path | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Evaluate `model`; nothing is written, `output_path` is there for the trainer."""
        encoder = BatchEncoder(model, self.batch_size, "the model in training")
        scorer = EncoderScorer(encoder, domains_of(self.table), self.name, self.route_map)
        scores = score_pairs(scorer, self.table)
        measured = measure(self.table, scores, replicates=0, threshold_min=self.threshold_min)
        found = self._named("", measured.figures[POOLED])
        for domain, figures in measured.by_domain().items():
            found |= self._named(f"{domain}_", figures)
        accuracy = router_accuracy(encoder, self.table, scorer.routes, TEXTS_WHILE_TRAINING)
        found |= {} if accuracy is None else self._of_routers(accuracy)
        self.store_metrics_in_model_card_data(model, found, epoch, steps)
        return found

    def _named(self, prefix: str, figures: PairMetrics) -> dict[str, float]:
        start = f"{self.name}_" if self.name else ""
        values = ((metric, figures.metrics[metric]) for metric in REPORTED)
        return {f"{start}{prefix}{metric}": value for metric, value in values if value is not None}

    def _of_routers(self, accuracy: RouterAccuracy) -> dict[str, float]:
        start = f"{self.name}_router_accuracy" if self.name else "router_accuracy"
        blocks = {f"{start}_block_{block}": share for block, share in accuracy.by_block.items()}
        return {start: accuracy.mean, **blocks}

    def get_config_dict(self) -> dict[str, Any]:
        """The settings that the model card shows."""
        return {"pairs": self.table.num_rows, "threshold_min": self.threshold_min}

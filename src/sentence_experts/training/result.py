"""The result of a training run, and the card of its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from sentence_transformers import SentenceTransformer

from sentence_experts.models.card import make_usage_card
from sentence_experts.models.sources import UNTRAINED
from sentence_experts.training.config import ARGMAX_TARGET, IN_BATCH_NEGATIVES, LEARNED_TEMPERATURE
from sentence_experts.training.data import TrainedRoute, TrainingPart, find_own_routes
from sentence_experts.training.training_set import TrainingSet
from sentence_experts.training.validation import MEAN, TITLES

if TYPE_CHECKING:
    import pandas as pd

REMEDY = (
    "Train for more steps (`max_steps`, `epochs`), on more pairs or nearer ones (`pairs compile` with more "
    "articles, or `train_within`), or with another `learning_rate`"
)


@dataclass(frozen=True, repr=False)
class TrainResult:
    """A finished training run.

    Attributes:
        model: the kept model: the best by the validation figure, or the model of the last step (`keep`); the
            one given to `train`, if it was one in memory.
        validation: validation figure of the model, the mean over the routes; None if no validation pairs
            could be scored, and the last step was kept.
        kept_step: step of the model; 0 if the model before training was the best.
        steps: number of steps of the run.
        history: one dict per validation, the first before training: step and figures.
        start: the validation figure before training.
        losses: pairs [step, training loss], every ten steps or more often.
        learned: values that the loss itself learned, such as a temperature.
        out: the folder of the run; None if the result is in memory only.
    """

    model: SentenceTransformer
    validation: float | None
    kept_step: int
    steps: int
    history: list[dict[str, Any]]
    start: float | None = None
    losses: list[list[float]] = field(default_factory=list)
    learned: dict[str, float] = field(default_factory=dict)
    out: Path | None = None

    @classmethod
    def of(cls, model: SentenceTransformer, record: dict[str, Any], out: Path | None) -> TrainResult:
        """Return the result that run.json records."""
        names = ("validation", "kept_step", "steps", "history", "losses", "learned")
        figures = {name: record[name] for name in names}
        return cls(model, **figures, start=record["start_validation"], out=out)

    def __repr__(self) -> str:
        where = "" if self.out is None else f", out={str(self.out)!r}"
        return f"TrainResult({self.summary}{where})"

    @property
    def summary(self) -> str:
        """The gain of the run, in a few words."""
        if self.validation is None or self.start is None:
            return f"step {self.steps} of {self.steps}, not validated"
        gap = self.validation - self.start
        gain = (
            f"{abs(gap):.4f} {'below' if gap < 0 else 'above'}"
            if self.kept_step
            else "no step was better than"
        )
        untrained = "" if self.kept_step else f"{UNTRAINED}. {REMEDY}. "
        return (
            f"{untrained}validation {self.validation:.4f} at step {self.kept_step} of {self.steps}: {gain} "
            f"the {self.start:.4f} before training"
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return a row per validation: step, training loss, mean and the main figures of each route.

        `history` has all figures.
        """
        import pandas as pd

        rows = []
        for figures in self.history:
            losses = [loss for step, loss in self.losses if step <= figures["step"]]
            row = {"step": figures["step"], "training_loss": losses[-1] if losses else None}
            named = {name.removeprefix("eval_validation_"): value for name, value in figures.items()}
            endings = tuple(f"/{metric}" for metric in TITLES)
            # Sorted, as run.json is.
            shown = sorted(name for name in named if name.endswith(endings))
            rows.append(row | {name: named[name] for name in (MEAN, *shown) if name in named})
        return pd.DataFrame(rows)


LOSSES = {
    IN_BATCH_NEGATIVES: "in-batch negatives over cosines divided by the temperature",
    ARGMAX_TARGET: "dot products of the batch; the target of each row is its most similar pair",
    LEARNED_TEMPERATURE: "dot products over a learned temperature ({temperature:.4g} at the end), in both "
    "directions",
}
BATCHES = {"homogeneous": "one dataset", "heterogeneous": "all datasets of the task", "mixed": "all routes"}


def make_model_card(
    model: SentenceTransformer,
    parts: Sequence[TrainingPart],
    training: TrainingSet,
    result: dict[str, Any],
    idle: Sequence[str] = (),
) -> str:
    """Return the README.md of a trained model.

    `result` is what run.json holds, `idle` the routes without a batch.
    """
    config, processes = result["config"], result["processes"]
    data = "; ".join(part.describe() for part in parts if find_own_routes(part, training.routes))
    together = f", put together by {processes} processes" if processes > 1 else ""
    best: dict[str, Any] = next(
        (entry for entry in result["history"] if entry["step"] == result["kept_step"]), {}
    )
    counts = np.bincount(training.places[:, 0], minlength=len(training.routes))
    rows = "\n".join(
        f"| {route.name} | {'none of ' * (route.name in idle)}{count:,} | {', '.join(route.sources)} | "
        f"{BATCHES[route.batches]} | {route.temperature:g} | {_format_figures(route, best)} |"
        for route, count in zip(training.routes, counts, strict=True)
    )
    title = f"A text encoder for {', '.join(route.name for route in training.routes)}"
    return f"""{make_usage_card(model, title)}
## Training

{len(training):,} {data}, in batches of
{config["batch_size"] * processes:,} pairs{together}.
Loss: {LOSSES[config["loss"]].format(**result["learned"])}.

| route | pairs | datasets | batch drawn from | temperature | validation |
|---|---|---|---|---|---|
{rows}

The kept model: {TrainResult.of(model, result, None).summary}. Figures of the validation split are no
estimate for new texts: see an evaluation on the test split. Settings:

```yaml
{yaml.safe_dump(config, sort_keys=False)}```
"""


def _format_figures(route: TrainedRoute, best: dict[str, Any]) -> str:
    keys = {f"eval_validation_{route.name}/{metric}": title for metric, title in TITLES.items()}
    return ", ".join(f"{title} {best[key]:.4f}" for key, title in keys.items() if key in best)

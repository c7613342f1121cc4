"""The result of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformer

from sentence_experts.models.sources import UNTRAINED
from sentence_experts.training.validation import MEAN, TITLES

REMEDY = (
    "Train for more steps (`max_steps`, `epochs`), on more pairs or nearer ones (`pairs compile` with more "
    "articles, or `train_within`), or with another `learning_rate`"
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class TrainResult:
    """A finished training run.

    Attributes:
        model: the kept model: the best by the validation figure, or that of the last step (`keep`); the model
            given to `train`, if it was one in memory.
        validation: its validation figure, the mean over the routes; None if no validation pairs could tell,
            and the last step was kept.
        kept_step: its step; 0 if the model before training was the best.
        steps: number of steps of the run.
        history: one dict per validation, the first before training: step and figures.
        start: the validation figure before training.
        losses: [step, training loss], every ten steps or more often.
        learned: what the loss itself learned, such as a temperature.
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
            rows.append(row | {n: value for n, value in named.items() if n == MEAN or n.endswith(endings)})
        return pd.DataFrame(rows)
